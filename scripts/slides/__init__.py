"""Slides of a chapter, from its source and its executed notebook (`make slides`).

One self-contained page for each chapter, ``_build/slides/<slug>.html``: it asks for nothing, so it
opens from a memory stick. ``outline`` cuts a source into sections, ``pick`` chooses what belongs on
a slide, with ``statements``, ``figures`` and ``words`` for the kinds; ``setting`` makes HTML of its
text, ``mathml`` (with ``symbols``) of its formulas; ``fit`` cuts long text over several slides,
``timing`` says how long each takes, ``deck`` writes the page. ``book/slides.yml`` steers them.
"""
