// Evaluates Spack directives, which hvd.docs.which_spec exports from the recipe, on a spec.
// The meaning of specs, versions and directives is that of hvd.model.specs and
// hvd.model.recipe; tests/services/test_docs_site.py compares the two.
const hvdSpec = (() => {
  const NAME = "[A-Za-z_][\\w-]*(?:\\.[\\w-]+)*";
  const TOKEN = new RegExp(
    "\\s*(?:" +
      [
        `(?<edge>[\\^%])\\s*(?:\\[[^\\]]*\\]\\s*)?(?<dependency>${NAME})?`,
        "@(?<versions>[\\w.:,=-]+)",
        `(?<sign>[+~])(?<flag>${NAME})`,
        `(?<key>${NAME})\\s*:?=\\s*(?<values>"[^"]*"|[^\\s"^%]+)`,
        `(?<name>${NAME})`,
      ].join("|") +
      ")",
    "y",
  );

  const empty = (name = "") => ({ name, versions: "", variants: {}, dependencies: {} });

  function parse(text) {
    const root = empty();
    let current = root;
    let position = 0;
    while (text.slice(position).trim()) {
      TOKEN.lastIndex = position;
      const token = TOKEN.exec(text)?.groups;
      if (!token) throw new Error(`'${text.slice(position).trim()}' is not understood`);
      position = TOKEN.lastIndex;
      if (token.edge) {
        current = empty(token.dependency);
        root.dependencies[current.name] = current;
      } else if (token.versions) {
        current.versions = token.versions.replace(/^=+/, "");
      } else if (token.flag) {
        current.variants[token.flag] = token.sign === "+";
      } else if (token.key) {
        current.variants[token.key] = token.values.replace(/^"+|"+$/g, "").split(",").sort();
      } else if (current.name) {
        throw new Error(`a second name, '${token.name}': put ^ in front of a dependency`);
      } else {
        current.name = token.name;
      }
    }
    return root;
  }

  const parsed = new Map();
  function parseOnce(text) {
    if (!parsed.has(text)) parsed.set(text, parse(text));
    return parsed.get(text);
  }

  function format(spec) {
    const words = [spec.name + (spec.versions && `@${spec.versions}`)];
    for (const [key, value] of Object.entries(spec.variants).sort()) {
      if (Array.isArray(value)) words.push(`${key}=${value.join(",")}`);
      else words[0] += (value ? "+" : "~") + key;
    }
    words.push(...Object.values(spec.dependencies).map((each) => `^${format(each)}`));
    return words.filter(Boolean).join(" ");
  }

  // Versions. A key is a list of numbers and names; names sort after numbers.
  const key = (version) =>
    version
      .split(/[._-]/)
      .filter(Boolean)
      .map((part) => (/^\d+$/.test(part) ? Number(part) : part));

  function compareParts(one, other) {
    if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1;
    return one < other ? -1 : Number(one > other);
  }

  function compare(one, other) {
    const [left, right] = [key(one), key(other)];
    for (let at = 0; at < Math.min(left.length, right.length); at++) {
      const order = compareParts(left[at], right[at]);
      if (order) return order;
    }
    return left.length - right.length;
  }

  function begins(version, prefix) {
    const have = key(version);
    return key(prefix).every((part, at) => part === have[at]);
  }

  function bounds(range) {
    const [low, high] = range.replace(/^=+/, "").split(":");
    return [low, high ?? low];
  }

  function inRange(version, range) {
    if (range.startsWith("=")) return version === range.slice(1);
    if (!range.includes(":")) return begins(version, range);
    const [low, high] = bounds(range);
    if (low && compare(version, low) < 0) return false;
    return !high || compare(version, high) <= 0 || begins(version, high);
  }

  function versionIn(version, constraint) {
    if (/[:,]/.test(version)) return version === constraint;
    return constraint.split(",").some((range) => inRange(version, range));
  }

  const beyond = (low, high) => low && high && compare(low, high) > 0 && !begins(low, high);

  function overlap(one, other) {
    return one.split(",").some((left) =>
      other.split(",").some((right) => {
        const [low, high] = bounds(left);
        const [lower, higher] = bounds(right);
        return !beyond(low, higher) && !beyond(lower, high);
      }),
    );
  }

  const contains = (all, some) => some.every((each) => all.includes(each));
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

  class Recipe {
    constructor(data) {
      Object.assign(this, data);
    }

    named(name) {
      return this.directives.filter((each) => each.name === name);
    }

    definitions(variant) {
      return this.named("variant").filter((each) => each.arguments[0] === variant);
    }

    targetIn(target, range) {
      if (!range.includes(":")) return target === range;
      const [low, high] = range.split(":");
      const atLeast = (one, other) => one === other || this.targets[one]?.includes(other);
      if (!(target in this.targets)) return false;
      return (!low || atLeast(target, low)) && (!high || atLeast(high, target));
    }

    hasVariant(name, have, wanted) {
      if (!Array.isArray(have) || !Array.isArray(wanted)) return have === wanted;
      if (name !== "target") return contains(have, wanted);
      return have.some((target) => wanted.some((range) => this.targetIn(target, range)));
    }

    satisfies(spec, condition) {
      if (condition.name && condition.name !== spec.name) return false;
      if (condition.versions && !(spec.versions && versionIn(spec.versions, condition.versions)))
        return false;
      const variants = Object.entries(condition.variants);
      if (!variants.every(([name, wanted]) => this.hasVariant(name, spec.variants[name], wanted)))
        return false;
      return Object.entries(condition.dependencies).every(
        ([name, wanted]) =>
          spec.dependencies[name] && this.satisfies(spec.dependencies[name], wanted),
      );
    }

    // Like satisfies, but what `spec` leaves open fits.
    intersects(spec, other) {
      if (spec.versions && other.versions && !overlap(spec.versions, other.versions)) return false;
      const named = Object.entries(other.variants).filter(([name]) => name in spec.variants);
      return this.satisfies(spec, { ...other, versions: "", variants: Object.fromEntries(named) });
    }

    applies(directive, spec) {
      return directive.when.every((condition) => this.satisfies(spec, parseOnce(condition)));
    }

    // Give every variant a value. A variant that is named brings the condition it has, as in
    // Spack; the others have their defaults.
    complete(spec) {
      const full = { ...spec, variants: { ...spec.variants } };
      for (const name of Object.keys(spec.variants)) {
        const known = this.definitions(name);
        if (!known.length || known.some((each) => this.applies(each, full))) continue;
        const said = (conditions) =>
          Object.keys(conditions).filter((each) => each in spec.variants).length;
        const [first] = known
          .map(({ when }) => Object.assign({}, ...when.map((each) => parseOnce(each).variants)))
          .filter((conditions) =>
            Object.entries(conditions).every(
              ([key, value]) => !(key in full.variants) || same(full.variants[key], value),
            ),
          )
          .sort((one, other) => said(other) - said(one));
        Object.assign(full.variants, first);
      }
      for (const directive of this.named("variant")) {
        const [name] = directive.arguments;
        if (name in full.variants || !this.applies(directive, full)) continue;
        const value = directive.default;
        full.variants[name] = typeof value === "boolean" ? value : value.split(",").sort();
      }
      return full;
    }

    isRefusal(directive, spec) {
      if (directive.name === "conflicts")
        return this.satisfies(spec, parseOnce(directive.arguments[0]));
      const wanted = directive.arguments.map(parseOnce);
      if (directive.name === "depends_on") {
        const have = spec.dependencies[wanted[0].name];
        return Boolean(have) && !this.intersects(have, wanted[0]);
      }
      if (directive.name !== "requires") return false;
      // a solver may add the dependency
      const open = wanted.some(({ dependencies }) => {
        const names = Object.keys(dependencies);
        return names.length && !names.some((name) => name in spec.dependencies);
      });
      const met = wanted.filter((each) => this.satisfies(spec, each)).length;
      return !open && !(directive.policy === "any_of" ? met : met === 1);
    }

    // Every message against a spec with a version and all its variants.
    messages(spec) {
      for (const name of Object.keys(spec.variants)) {
        const known = this.definitions(name);
        if (!known.length || known.some((each) => this.applies(each, spec))) continue;
        const conditions = known.map(({ when }) => when.join(" ")).join(" or ");
        return [`${spec.name} has the variant '${name}' only with ${conditions}`];
      }
      const said = this.directives
        .filter((each) => this.applies(each, spec) && this.isRefusal(each, spec))
        .map((directive) => {
          if (directive.msg) return directive.msg;
          const wanted = parseOnce(directive.arguments[0]);
          const have = format(spec.dependencies[wanted.name]);
          return `depends on ${format(wanted)}, but there is ${have}`;
        });
      return [...new Set(said)];
    }

    // {spec} for the newest version that takes `spec`, or {messages} of the newest it could be.
    check(spec) {
      const could = this.versions
        .filter((version) => !spec.versions || versionIn(version, spec.versions))
        .map((versions) => this.complete({ ...spec, versions }));
      for (const full of could) if (!this.messages(full).length) return { spec: full };
      if (could.length) return { messages: this.messages(could[0]) };
      return { messages: [`the recipe has no ${spec.name}@${spec.versions}`] };
    }

    // The packages, virtual ones among them, that a completed spec may depend on, whatever its
    // dependencies are.
    dependencies(spec) {
      const applies = (text) => this.satisfies(spec, { ...parseOnce(text), dependencies: {} });
      const found = this.named("depends_on").filter((each) => each.when.every(applies));
      return new Set(found.map((each) => parseOnce(each.arguments[0]).name));
    }
  }

  return { Recipe, parse, format };
})();
