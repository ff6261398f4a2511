"""What a user can get wrong: said in one line, without a traceback."""


class UserError(Exception):
    """The text says what is wrong and what to do about it. The command line prints it and exits with 2."""
