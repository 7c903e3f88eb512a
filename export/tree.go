package export

import (
	"slices"
	"strconv"
	"strings"
)

// A Tree is how a function groups its arguments or results: a leaf is one value.
type Tree struct {
	Kind     string   `json:"kind"` // leaf, none, tuple, list, dict or custom
	Children []*Tree  `json:"children,omitempty"`
	Keys     []string `json:"keys,omitempty"` // of a dict, one for each child
	Type     string   `json:"type,omitempty"` // of a custom node, as its exporter registered it
	Aux      []byte   `json:"aux,omitempty"`
}

// treeKinds are in the order of their numbers in the form of JAX.
var treeKinds = []string{"leaf", "none", "tuple", "list", "dict", "custom"}

// maxNodes bounds a tree: a node takes 8 bytes of a file, and more than ten times that in memory.
const maxNodes = 1 << 20

// readTree reads a tree of the form of JAX, from the node at some depth on. It counts the nodes.
func readTree(t table, depth int, nodes *int) *Tree {
	kind := t.number(0, 1)
	*nodes++
	switch {
	case *nodes > maxNodes:
		t.failf("a tree of arguments has more than %d nodes", maxNodes)
		return nil
	case depth > maxDepth:
		t.failf("a tree of arguments is nested more than %d deep", maxDepth)
		return nil
	case kind >= len(treeKinds):
		t.failf("unknown kind %d of a tree node", kind)
		return nil
	}
	out := &Tree{Kind: treeKinds[kind]}
	out.Children = list(t, 1, func(child table) *Tree { return readTree(child, depth+1, nodes) })
	out.Keys, out.Type = t.texts(2), t.text(3)
	if aux := t.target(4); aux != 0 {
		out.Aux = slices.Clone(t.f.bytes(aux))
	}
	t.f.fail(out.check())
	return out
}

func (t *Tree) check() error {
	leaf := t.Kind == "leaf" || t.Kind == "none"
	switch {
	case leaf && len(t.Children) > 0:
		return formErrorf("a tree node of kind %s has %d children", t.Kind, len(t.Children))
	case t.Kind == "dict" && len(t.Keys) != len(t.Children):
		return formErrorf("a dict with %d children has %d keys", len(t.Children), len(t.Keys))
	}
	return nil
}

// leaves counts the values of the tree.
func (t *Tree) leaves() int {
	if t.Kind == "leaf" {
		return 1
	}
	n := 0
	for _, c := range t.Children {
		n += c.leaves()
	}
	return n
}

// A namer lists the paths of leaves, in order (P-EXP-3). Parts are keys or positions, with a slash
// between them. A key stands in the path of every node below it, so the paths of a small file can be
// huge; bytes counts them.
type namer struct {
	names []string
	bytes int   // of the paths of all nodes so far
	err   error // ends it
}

// add names the leaves of t. prefix is the path of t with a slash at its end, or "".
func (n *namer) add(prefix string, t *Tree) {
	if t.Kind == "leaf" {
		n.names = append(n.names, strings.TrimSuffix(prefix, "/"))
		return
	}
	for i, c := range t.Children {
		part := strconv.Itoa(i)
		if t.Kind == "dict" {
			part = escape(t.Keys[i])
		}
		n.addChild(prefix, part, c)
	}
}

// addChild names the leaves of c, which is at part below prefix.
func (n *namer) addChild(prefix, part string, c *Tree) {
	switch n.bytes += len(prefix) + len(part); {
	case n.err != nil:
	case len(prefix)+len(part) > maxName:
		n.err = formErrorf("a name of more than %d bytes", maxName)
	case n.bytes > maxNames:
		n.err = formErrorf("the names in a tree of values have more than %d bytes", maxNames)
	default:
		n.add(prefix+part+"/", c)
	}
}

// escape keeps keys with slashes apart from paths, as JSON pointers do.
func escape(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

// argumentNames names the leaves of an argument tree. JAX's trees of arguments are pairs of a tuple,
// the positional arguments, and a dict, the keyword arguments; neither level is part of a name.
func argumentNames(t *Tree) ([]string, error) {
	var n namer
	if t.Kind != "tuple" || len(t.Children) != 2 || t.Children[0].Kind != "tuple" || t.Children[1].Kind != "dict" {
		n.add("", t)
		return n.names, n.err
	}
	n.add("", t.Children[0])
	for i, c := range t.Children[1].Children {
		n.addChild("", keywordName(t.Children[1].Keys[i]), c)
	}
	return n.names, n.err
}

// keywordName is the first part of the name of a keyword argument. Python allows f(x, **{"0": y}), whose
// keyword reads like the first position. Such a keyword gets a prefix that no escaped key has.
func keywordName(key string) string {
	if _, err := strconv.ParseUint(key, 10, 64); err == nil {
		return "~k" + key
	}
	return escape(key)
}

// resultNames names the leaves of a result tree; a single result has the name "out".
func resultNames(t *Tree) ([]string, error) {
	if t.Kind == "leaf" {
		return []string{"out"}, nil
	}
	var n namer
	n.add("", t)
	return n.names, n.err
}

// nameValues gives the values the names that their tree has for them.
func nameValues(t *Tree, values []Value, names func(*Tree) ([]string, error)) error {
	all, err := names(t)
	for i, name := range all {
		values[i].Name = name
	}
	return err
}

// fitTree makes sure that a tree has a leaf for each value.
func fitTree(kind string, t *Tree, values int) error {
	if n := t.leaves(); n != values {
		return formErrorf("%d %s, but their tree has %d leaves", values, kind, n)
	}
	return nil
}

// checkDeep checks a tree that did not come from a binary file, which is bounded by its reader.
func (t *Tree) checkDeep(depth int) error {
	if t == nil {
		return formErrorf("a tree of values is missing")
	}
	if depth > maxDepth {
		return formErrorf("a tree of values is nested more than %d deep", maxDepth)
	}
	if !slices.Contains(treeKinds, t.Kind) {
		return formErrorf("unknown kind %q of a tree node", t.Kind)
	}
	if err := t.check(); err != nil {
		return err
	}
	for _, c := range t.Children {
		if err := c.checkDeep(depth + 1); err != nil {
			return err
		}
	}
	return nil
}
