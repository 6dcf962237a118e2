"""The conformance kit: whether a plugin keeps its contract, for its author's own tests.

```python
@pytest.mark.parametrize("check", checks_for("blur"), ids=str)
def test_it_keeps_the_contract(check):
    check.hold()
```
"""

from harness.testing.examination import Report, Result, checks_for, conforms, examine

__all__ = ["Report", "Result", "checks_for", "conforms", "examine"]
