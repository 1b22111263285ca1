from tests.support.documented import commands_of, inline_commands

PAGE = """\
# A page

    octet doctor       # indented
    octet compile model.tflite \\
        --output a

text with `octet push` in it, `--flags`, and
    octet not a block, for it continues the paragraph

```
$ octet push model.tflite
octet said this
```

```python
curl = 1
```
<!-- run -->
```python
if True:
    print("it")
```
<!-- ID stands for: octet builds -->
<!-- setup: octet push model.tflite --name m -->
<!-- not run: it is for devices -->

```sh
FOO=1 octet run m
```
## In a heading
    octet run another
"""


def test_commands_are_found_in_blocks_and_comments() -> None:
    found = [(command.line, command.text, command.reason) for command in commands_of(PAGE, "page.md")]
    assert found == [
        (3, "octet doctor       # indented", ""),
        (4, "octet compile model.tflite --output a", ""),
        (11, "octet push model.tflite", ""),
        (20, "python -c 'if True:\n    print(\"it\")'", ""),
        (23, "octet builds", ""),
        (24, "octet push model.tflite --name m", ""),
        (28, "FOO=1 octet run m", "it is for devices"),
        (31, "octet run another", ""),
    ]


def test_a_word_can_stand_for_the_output_of_a_command() -> None:
    assert [command.stands_for for command in commands_of(PAGE, "page.md") if command.stands_for] == ["ID"]


def test_the_program_of_a_command_comes_after_its_variables() -> None:
    assert [command.program for command in commands_of(PAGE, "page.md")][-2:] == ["octet", "octet"]


def test_commands_are_found_in_sentences() -> None:
    assert list(inline_commands(PAGE)) == ["octet push"]
