"""A pydantic model checks the input, and a pydantic model is the answer.

Currency and tax come from mcp/env.yaml.
"""

import os
from decimal import Decimal
from enum import Enum

from pydantic import BaseModel, Field


class Size(str, Enum):
    SMALL = "small"
    LARGE = "large"


class Line(BaseModel):
    sku: str = Field(min_length=1)
    quantity: int = Field(gt=0)
    unit_price: Decimal = Field(ge=0)


class Total(BaseModel):
    customer: str
    currency: str
    net: Decimal
    tax: Decimal
    gross: Decimal
    size: Size


def total(customer, lines):
    order = [Line.model_validate(line) for line in lines]
    cent = Decimal("0.01")
    net = sum((line.quantity * line.unit_price for line in order), Decimal(0))
    tax = (net * Decimal(os.environ["SHOP_TAX_PERCENT"]) / 100).quantize(cent)
    return Total(
        customer=customer,
        currency=os.environ["SHOP_CURRENCY"],
        net=net.quantize(cent),
        tax=tax,
        gross=(net + tax).quantize(cent),
        size=Size.LARGE if len(order) > 10 else Size.SMALL,
    )
