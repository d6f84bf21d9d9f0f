"""Chat templates that take a gigabyte or minutes where nothing bounds them, by what they use."""

_DOUBLED = "".join(
    "{% set b %}{{ a }}{{ a }}{% endset %}{% set a %}{{ b }}{% endset %}" for _ in range(30)
)
_MACROS = "d(" * 28 + "'xxxxxxxx'" + ")" * 28
_NESTED = "".join("{% set l = [l, l] %}" for _ in range(30))
ATTACKS = {
    "format": '{{ "{:>900000000}".format("x") }}',
    "to_bytes": "{{ (1).to_bytes(900000000, 'big') | length }}",
    "set blocks": "{% set a %}xxxxxxxx{% endset %}" + _DOUBLED + "{{ a }}",
    "macros": "{% macro d(s) %}{{ s }}{{ s }}{% endmacro %}{{ " + _MACROS + " }}",
    "nested lists": "{% set l = 'xxxxxxxx' %}" + _NESTED + "{{ l | string | length }}",
    "round": "{{ 1.5 | round(30000000, 'ceil') }}",
    "sum": (
        "{% set l = [range(1000) | list] * 1000 %}{% for i in range(1000) %}"
        "{{ l | sum(start=[]) | length }}{% endfor %}"
    ),
    "large strings": (
        "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}"
        "{% set ns.l = ns.l + ['x' * 3000000 + i | string] %}{% endfor %}{{ ns.l | length }}"
    ),
}
