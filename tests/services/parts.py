"""What a program of parts has: functions that a driver calls, and what becomes of each."""

import json
import traceback

PARTS = []


def part(function):
    PARTS.append(function)
    return function


def error_of(function, *arguments, **options):
    """What a call raises, which it must."""
    try:
        function(*arguments, **options)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def run(*arguments):
    """Call each part, and print its name with its trace, which is empty if it ended well."""
    for each in PARTS:
        try:
            each(*arguments)
            outcome = ""
        except Exception:
            outcome = traceback.format_exc()
        print(json.dumps([each.__name__, outcome]), flush=True)
