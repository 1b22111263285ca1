from service.cli.commands import main

main()
