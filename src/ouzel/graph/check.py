"""The graph's specification, checked when a graph is built and after every pass."""

from __future__ import annotations

from ouzel.errors import GraphError
from ouzel.graph.graph import Graph, Node, Value
from ouzel.graph.ops import OPS, Op, operand_names


def check_graph(graph: Graph) -> None:
    """Raises GraphError at the first node that breaks the specification.

    Every input of a node is made before it; every value is made once; operand counts, types, row symbols, widths, weight
    shapes and attributes fit the operation table; cache layers are numbered from 0 without gaps; outputs exist.
    """
    made = set(graph.inputs)
    for name in graph.inputs:
        _require(name in graph.values, name, "input has no declared value")
    for node in graph.nodes:
        form = OPS.get(node.op)
        if form is None:
            raise GraphError(f"{node.output}: unknown operation {node.op}")
        for name in node.inputs:
            _require(name in made, node.output, f"reads {name}, which is not made before it")
        _require(node.output not in made, node.output, "is made twice")
        _require(node.output in graph.values, node.output, "has no declared value")
        _check_attrs(form, node)
        _check_operands(graph, form, node)
        made.add(node.output)
    for name in graph.outputs:
        _require(name in made, name, "is an output but is never made")
    _check_cache_layers(graph)


def _check_attrs(form: Op, node: Node) -> None:
    _require(set(node.attrs) == set(form.attrs), node.output, f"attributes {sorted(node.attrs)}, not {sorted(form.attrs)}")
    for key, attr in form.attrs.items():
        value = node.attrs[key]
        _require(type(value) is attr.kind, node.output, f"attribute {key} is {value!r}, not {attr.kind.__name__}")
        _require(attr.choices is None or value in attr.choices, node.output, f"attribute {key}={value!r} not in {attr.choices}")


def _check_operands(graph: Graph, form: Op, node: Node) -> None:
    _require(_count_fits(len(node.inputs), form.inputs), node.output, f"{len(node.inputs)} inputs for {form.inputs}")
    _require(_count_fits(len(node.weights), form.weights), node.output, f"{len(node.weights)} weights for {form.weights}")
    names = operand_names(form, len(node.inputs), form.inputs)
    inputs = {name: graph.values[value] for name, value in zip(names, node.inputs)}
    for name, value in inputs.items():
        wanted = "i32" if name in form.integer_inputs else "f32"
        _require(value.dtype == wanted, node.output, f"{name} ({value.name}) is {value.dtype}, not {wanted}")
    shapes = {}
    for name, weight in zip(operand_names(form, len(node.weights), form.weights), node.weights):
        _require(weight in graph.weights, node.output, f"weight {weight} is not declared")
        shapes[name] = graph.weights[weight]
    out = graph.values[node.output]
    width = form.width({name: value.width for name, value in inputs.items()}, shapes, node.attrs)
    _require(out.width == width and out.dtype == "f32", node.output, f"declared {out}, but has width {width}")
    if form.rows_of is not None:
        _require(out.rows == inputs[form.rows_of].rows, node.output, f"rows {out.rows}, not {inputs[form.rows_of].rows}")
    _RULES.get(node.op, _no_rule)(node, inputs, shapes, out)


def _no_rule(node: Node, inputs: dict[str, Value], shapes: dict[str, tuple[int, ...]], out: Value) -> None:
    return


def _index_rule(node: Node, inputs: dict[str, Value], shapes: dict[str, tuple[int, ...]], out: Value) -> None:
    index = inputs["ids"] if "ids" in inputs else inputs["index"]
    _require(index.width == 1, node.output, f"index {index.name} has width {index.width}, not 1")
    if "values" in inputs:
        values = inputs["values"]
        _require(values.width == out.width and values.rows == index.rows, node.output, f"values {values} do not fit")


def _linear_rule(node: Node, inputs: dict[str, Value], shapes: dict[str, tuple[int, ...]], out: Value) -> None:
    _require(len(shapes["weight"]) == 2, node.output, f"weight has shape {shapes['weight']}")
    _require(shapes["weight"][1] == inputs["x"].width, node.output, f"weight {shapes['weight']} on width {inputs['x'].width}")
    _require(shapes.get("bias", (out.width,)) == (out.width,), node.output, f"bias {shapes.get('bias')}")
    _same_form(node, inputs, ("residual",), out)


def _norm_rule(node: Node, inputs: dict[str, Value], shapes: dict[str, tuple[int, ...]], out: Value) -> None:
    heads = node.attrs.get("heads", 1)
    _require(heads > 0 and out.width % heads == 0, node.output, f"{heads} heads in width {out.width}")
    for name, shape in shapes.items():
        _require(shape == (out.width // heads,), node.output, f"{name} has shape {shape}, not ({out.width // heads},)")


def _pair_rule(node: Node, inputs: dict[str, Value], shapes: dict[str, tuple[int, ...]], out: Value) -> None:
    _same_form(node, inputs, ("y", "up"), out)


def _rotary_rule(node: Node, inputs: dict[str, Value], shapes: dict[str, tuple[int, ...]], out: Value) -> None:
    heads = node.attrs["heads"]
    _require(heads > 0 and out.width % heads == 0, node.output, f"{heads} heads in width {out.width}")
    half = inputs["cos"].width
    _require(2 * half <= out.width // heads, node.output, f"rotates {2 * half} of {out.width // heads} columns")
    for name in ("cos", "sin"):
        fits = inputs[name].width == half and inputs[name].rows == out.rows
        _require(fits, node.output, f"{name} is {inputs[name]}")


def _attention_rule(node: Node, inputs: dict[str, Value], shapes: dict[str, tuple[int, ...]], out: Value) -> None:
    a = node.attrs
    _require(a["kv_heads"] > 0 and a["heads"] % a["kv_heads"] == 0, node.output, f"{a['heads']} heads on {a['kv_heads']}")
    wanted = {
        "x": a["heads"] * a["head_dim"],
        "k": a["kv_heads"] * a["head_dim"],
        "v": a["kv_heads"] * a["value_dim"],
    }
    for name, width in wanted.items():
        _require(inputs[name].width == width, node.output, f"{name} has width {inputs[name].width}, not {width}")
        _require(inputs[name].rows == out.rows, node.output, f"{name} has rows {inputs[name].rows}")
    _require((a["layer"] >= 0) == (a["mode"] == "causal"), node.output, f"layer {a['layer']} in mode {a['mode']}")


def _fold_rule(node: Node, inputs: dict[str, Value], shapes: dict[str, tuple[int, ...]], out: Value) -> None:
    _require(node.attrs["count"] > 0, node.output, f"count {node.attrs['count']}")
    _require(out.rows == node.attrs["rows"], node.output, f"rows {out.rows}, not {node.attrs['rows']}")


def _blend_rule(node: Node, inputs: dict[str, Value], shapes: dict[str, tuple[int, ...]], out: Value) -> None:
    fits = inputs["taps"].width == inputs["x"].width and inputs["taps"].rows == inputs["x"].rows
    _require(fits, node.output, f"taps {inputs['taps']} and weights {inputs['x']}")


_RULES = {
    "embed": _index_rule,
    "take_rows": _index_rule,
    "put_rows": _index_rule,
    "add_rows": _index_rule,
    "linear": _linear_rule,
    "rms_norm": _norm_rule,
    "layer_norm": _norm_rule,
    "rotary": _rotary_rule,
    "attention": _attention_rule,
    "silu_mul": _pair_rule,
    "add": _pair_rule,
    "mul": _pair_rule,
    "fold_rows": _fold_rule,
    "blend_rows": _blend_rule,
}


def _same_form(node: Node, inputs: dict[str, Value], names: tuple[str, ...], out: Value) -> None:
    for name in names:
        if name in inputs:
            value = inputs[name]
            _require(value.width == out.width and value.rows == out.rows, node.output, f"{name} is {value}, not like {out}")


def _check_cache_layers(graph: Graph) -> None:
    layers = [n.attrs["layer"] for n in graph.nodes if n.op == "attention" and n.attrs["mode"] == "causal"]
    _require(sorted(layers) == list(range(len(layers))), graph.name, f"cache layers are {layers}")


def _count_fits(given: int, names: tuple[str, ...]) -> bool:
    least = sum(not name.endswith("?") for name in names)
    return least <= given <= len(names)


def _require(condition: bool, where: str, what: str) -> None:
    if not condition:
        raise GraphError(f"{where}: {what}")
