"""Slides of a chapter, from its source and its executed notebook (`make slides`).

One self-contained page for each chapter, ``_build/slides/<slug>.html``: it asks for nothing, so it
opens from a memory stick. ``outline`` cuts a source into sections, ``pick`` chooses what belongs on
a slide; ``statements``, ``figures``, ``tables`` and ``words`` make slides of each kind; ``setting``
makes HTML of their text, ``mathml`` (with ``tex``, ``elements`` and ``symbols``) of formulas;
``fit`` cuts long text over several slides, ``timing`` says how long each takes, ``deck`` writes the
page, and ``player.js`` shows it. ``book/slides.yml`` steers them.
"""
