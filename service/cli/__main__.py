from service.cli.command_line import main

main()
