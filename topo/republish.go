package topo

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Limits of a [Rule]. Patterns come from a configuration file, keys from tasks.
const (
	maxPatterns     = 64
	maxPatternBytes = 256
)

// DefaultPatterns returns the keys that a restarted task may write a second
// time (P-TOP-1): topologies with and without a platform's prefix, and the two
// tables by which Orbax finds out who owns which device. Every program that
// uses an insert as an election writes to other keys.
func DefaultPatterns() []string {
	return []string{
		"*:local_topology/**",
		"*:global_topology/*",
		"local_topology/**",
		"global_topology/*",
		"orbax/distributed_to_device_ids/*",
		"jax/process_id/*",
	}
}

var defaultRule = mustRule(DefaultPatterns())

// Republished reports whether an insert of offered under key may be answered as
// if it were the first, because key is one of the [DefaultPatterns] and stored
// says the same. Key is in its stored form, with slashes normalised. It is the
// comparison that the coordination machine is configured with (C-KV-15).
func Republished(key string, stored, offered []byte) bool {
	return defaultRule.Republished(key, stored, offered)
}

// A Rule says for which keys a second insert of an equal value is no conflict.
// The zero Rule matches no key, so that every second insert is one.
type Rule struct {
	patterns []pattern
}

// NewRule makes a rule of patterns. In a pattern `*` stands for any text
// without a slash, `**` for any text at all, everything else for itself; a
// pattern covers the whole key. A pattern no key could match is refused, and so
// is one so wide that it would take programs' own keys: it must name something.
func NewRule(patterns ...string) (*Rule, error) {
	if len(patterns) > maxPatterns {
		return nil, fmt.Errorf("%d republish patterns; at most %d are allowed", len(patterns), maxPatterns)
	}
	r := &Rule{}
	for _, text := range patterns {
		p, err := parsePattern(text)
		if err != nil {
			return nil, err
		}
		r.patterns = append(r.patterns, p)
	}
	return r, nil
}

// Republished is [Republished] for the patterns of this rule.
func (r *Rule) Republished(key string, stored, offered []byte) bool {
	for _, p := range r.patterns {
		if p.match(key) {
			return sameValue(key, stored, offered)
		}
	}
	return false
}

// sameValue compares topologies by meaning, since the order of a map differs
// from one encoding to the next (C-TOP-32), and everything else by bytes.
func sameValue(key string, a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	switch topologyFamily(key) {
	case localFamily:
		return sameLocalBytes(a, b)
	case globalFamily:
		return sameGlobalBytes(a, b)
	}
	return false
}

func sameLocalBytes(a, b []byte) bool {
	x, errX := ParseLocal(a)
	y, errY := ParseLocal(b)
	return errX == nil && errY == nil && proto.Equal(x, y)
}

// sameGlobalBytes goes task by task, so that the first that differs ends it: the
// topology of a large job takes a while to parse, and whoever asks is the
// service.
func sameGlobalBytes(a, b []byte) bool {
	x, okX := splitTasks(a)
	y, okY := splitTasks(b)
	if !okX || !okY { // garbage, or fields of a later version
		x, errX := ParseGlobal(a)
		y, errY := ParseGlobal(b)
		return errX == nil && errY == nil && proto.Equal(x, y)
	}
	return slices.EqualFunc(x, y, func(a, b []byte) bool { return bytes.Equal(a, b) || sameLocalBytes(a, b) })
}

// splitTasks takes a global topology apart into its local ones. It is false if
// there is anything else in it.
func splitTasks(value []byte) (tasks [][]byte, ok bool) {
	for len(value) > 0 {
		num, kind, n := protowire.ConsumeTag(value)
		if n < 0 || num != globalPath[0] || kind != protowire.BytesType {
			return nil, false
		}
		task, size := protowire.ConsumeBytes(value[n:])
		if size < 0 {
			return nil, false
		}
		tasks = append(tasks, task)
		value = value[n+size:]
	}
	return tasks, true
}

// The first elements of the keys that are about topologies.
const (
	localFamily    = "local_topology"
	globalFamily   = "global_topology"
	identityFamily = "host_identity"
)

// topologyFamily returns the first element of key without the prefix that a
// client puts before its keys (C-TOP-6).
func topologyFamily(key string) string {
	first, _, _ := strings.Cut(key, "/")
	return first[strings.LastIndexByte(first, ':')+1:]
}

func mustRule(patterns []string) *Rule {
	r, err := NewRule(patterns...)
	if err != nil {
		panic(err)
	}
	return r
}

// A pattern is a sequence of literal bytes and wildcards.
type pattern []symbol

type symbol struct {
	wild  bool // matches any run of bytes
	slash bool // a wild one that crosses slashes too
	char  byte // what one that is not wild matches
}

func parsePattern(text string) (pattern, error) {
	refuse := func(why string) (pattern, error) {
		return nil, fmt.Errorf("republish pattern %q %s", text, why)
	}
	switch {
	case len(text) > maxPatternBytes:
		return nil, fmt.Errorf("republish pattern of %d bytes; at most %d are allowed", len(text), maxPatternBytes)
	case strings.Trim(text, "*/:") == "":
		return refuse("names no key")
	case strings.Contains(text, "***"):
		return refuse("has more than two stars in a row")
	case strings.HasPrefix(text, "/"), strings.HasSuffix(text, "/"), strings.Contains(text, "//"):
		return refuse("has a slash that no stored key has")
	}
	var p pattern
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], "**"):
			p = append(p, symbol{wild: true, slash: true})
			i++
		case text[i] == '*':
			p = append(p, symbol{wild: true})
		default:
			p = append(p, symbol{char: text[i]})
		}
	}
	return p, nil
}

// match runs all readings of the pattern side by side, so that no key, however
// long, makes it go back: the work is bytes of key times symbols of pattern.
func (p pattern) match(key string) bool {
	at := make([]bool, len(p)+1) // at[i]: what came so far is matched by p[:i]
	at[0] = true
	p.skipWild(at)
	for i := 0; i < len(key); i++ {
		alive := false
		for j := len(p); j >= 0; j-- {
			from := j > 0 && at[j-1] && !p[j-1].wild && p[j-1].char == key[i]
			stay := j < len(p) && at[j] && p[j].wild && (p[j].slash || key[i] != '/')
			at[j] = from || stay
			alive = alive || at[j]
		}
		if !alive {
			return false
		}
		p.skipWild(at)
	}
	return at[len(p)]
}

// skipWild lets every wildcard that is reached match nothing.
func (p pattern) skipWild(at []bool) {
	for j, s := range p {
		if at[j] && s.wild {
			at[j+1] = true
		}
	}
}
