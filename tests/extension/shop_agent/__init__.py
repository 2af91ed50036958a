"""A shop's agent: look at the stock, place the order, reserve it in the warehouse, mail the customer."""

from shop_agent.agent import shop

__all__ = ["shop"]
