"""Which model an agent asks: a scripted one by default, a real one by name."""

import os
from collections.abc import Callable

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.function import AgentInfo, FunctionModel

from transactions import InvalidInput

VARIABLE = "SUREFOOT_MODEL"
Script = Callable[[list[ModelMessage], AgentInfo], ModelResponse]


def model_from_env(script: Script) -> Model:
    """The model named by SUREFOOT_MODEL (`anthropic:...`, `openai:...`), else the script.

    The script decides from the messages it is given and holds no state, so it says the same after a restart.
    Raises InvalidInput for a name that is unknown, or whose key or provider package is missing.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        return FunctionModel(script, model_name="scripted")
    try:
        return infer_model(name)
    except ImportError as error:
        provider = name.partition(":")[0]
        raise InvalidInput(
            f"{VARIABLE}={name} needs a package that is missing: install surefoot[{provider}], or unset {VARIABLE}."
        ) from error
    except (UserError, ValueError) as error:
        raise InvalidInput(
            f"{VARIABLE}={name} cannot be used ({error}): correct it, or unset it for the scripted model."
        ) from error


def turns_so_far(messages: list[ModelMessage]) -> int:
    """How many responses the model has given in these messages: what a script branches on."""
    return sum(isinstance(message, ModelResponse) for message in messages)


def tool_returns(messages: list[ModelMessage]) -> dict[str, ToolReturnPart]:
    """The latest return of each tool in these messages, by the tool's name."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return {part.tool_name: part for part in parts if isinstance(part, ToolReturnPart)}
