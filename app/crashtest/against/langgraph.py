"""LangGraph: the agent of its quickstart as a graph of two nodes, with a Postgres checkpointer and durability "sync".

Invoked again with None on the same thread, a graph goes on from its last checkpoint. It needs the dependency group
`bench`.
"""
# Where the group is not installed, nothing of it has a type.
# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUntypedFunctionDecorator=false, reportUntypedBaseClass=false

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from app.crashtest.against import task

DURABILITY = "sync"
MODEL, TOOLS = "llm_call", "tool_node"


@tool
def order(reference: str) -> int:
    """Write the order into the database."""
    return task.order(reference)


@tool
def publish(reference: str) -> int:
    """Publish the order."""
    return task.publish(reference)


def llm_call(state: MessagesState) -> dict[str, Any]:
    messages = state["messages"]
    turns = sum(isinstance(message, AIMessage) for message in messages)
    name, reference = task.think(turns), messages[0].content
    if name is None:
        return {"messages": [AIMessage(f"Order {reference} is taken and published.")]}
    call = {"name": name, "args": {"reference": reference}, "id": f"call_{turns}"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def tool_node(state: MessagesState) -> dict[str, Any]:
    tools: dict[str, Any] = {"order": order, "publish": publish}
    return {
        "messages": [
            ToolMessage(content=str(tools[call["name"]].invoke(call["args"])), tool_call_id=call["id"])
            for call in _tool_calls(state)
        ]
    }


def _tool_calls(state: MessagesState) -> list[Any]:
    last: Any = state["messages"][-1]
    return last.tool_calls


def should_continue(state: MessagesState) -> str:
    return TOOLS if _tool_calls(state) else END


def prepare(url: str) -> None:
    task.create_tables(url)
    with PostgresSaver.from_conn_string(url) as checkpointer:
        checkpointer.setup()


def run(url: str, reference: str) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node(MODEL, llm_call)
    builder.add_node(TOOLS, tool_node)
    builder.add_edge(START, MODEL)
    builder.add_conditional_edges(MODEL, should_continue, [TOOLS, END])
    builder.add_edge(TOOLS, MODEL)
    with PostgresSaver.from_conn_string(url) as checkpointer:
        graph = builder.compile(checkpointer=checkpointer)
        thread: Any = {"configurable": {"thread_id": reference}}
        state = graph.get_state(thread)
        if state.created_at is None:
            graph.invoke({"messages": [HumanMessage(reference)]}, thread, durability=DURABILITY)
        elif state.next:
            graph.invoke(None, thread, durability=DURABILITY)


if __name__ == "__main__":
    task.main(prepare, run)
