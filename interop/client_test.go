package interop

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// A client is a process with one jaxlib client in it (testdata/client.py). It
// does one call at a time, as told.
type client struct {
	*process
}

// clientConfig says which jaxlib, and how it joins. Zero durations, in
// seconds, are jax's own defaults.
type clientConfig struct {
	venv        venv
	task        int
	heartbeat   int
	init        int      // or noTimeout
	plain       bool     // no gzip; jax always asks for it
	recoverable bool     // 0.8.2 sends it; the others leave it to the server
	env         []string // on top of environment
}

// noTimeout is 0 for jaxlib, which means no timeout there.
const noTimeout = -1

// newClient starts the process and builds the client, which is not connected.
func newClient(t *testing.T, addr string, cfg clientConfig) *client {
	t.Helper()
	options, err := json.Marshal(map[string]any{
		"heartbeat": cfg.heartbeat, "init": cfg.init, "plain": cfg.plain, "recoverable": cfg.recoverable,
	})
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s task %d", cfg.venv, cfg.task)
	p := start(t, name, environment(cfg.env...),
		cfg.venv.python(t), "testdata/client.py", addr, fmt.Sprint(cfg.task), string(options))
	return &client{p}
}

// connect joins a set of clients together: each waits for all. Then each makes
// a call, so that the server has its error poll, which was sent before: only
// the end of a connection that carried a poll is a death (C-LOST-4).
func connect(clients ...*client) {
	for _, c := range clients {
		c.t.Helper()
		c.begin("connect")
	}
	for _, c := range clients {
		c.end().value(nil)
		c.call("key_value_delete", "nothing").value(nil)
	}
}

// join starts one client for each of n tasks and connects them.
func join(t *testing.T, addr string, n int, cfg clientConfig) []*client {
	t.Helper()
	clients := make([]*client, n)
	for i := range clients {
		cfg.task = i
		clients[i] = newClient(t, addr, cfg)
	}
	connect(clients...)
	return clients
}

// leave shuts a set of clients down together and waits for their clean exit.
func leave(clients ...*client) {
	for _, c := range clients {
		c.t.Helper()
		c.begin("shutdown")
	}
	for _, c := range clients {
		c.end().value(nil)
	}
	for _, c := range clients {
		c.leaves()
	}
}

// begin sends a call of the Python client without waiting for its result.
func (c *client) begin(method string, args ...any) {
	c.t.Helper()
	request, err := json.Marshal(map[string]any{"call": method, "args": args})
	if err != nil {
		c.t.Fatal(err)
	}
	c.tell(string(request))
}

// end waits for the result of the call begun last.
func (c *client) end() result {
	c.t.Helper()
	r := result{c: c}
	line := c.line()
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		c.t.Fatalf("%s: printed %q: %v", c.name, line, err)
	}
	return r
}

// call does one call.
func (c *client) call(method string, args ...any) result {
	c.t.Helper()
	c.begin(method, args...)
	return c.end()
}

// A result is what a call of the Python client returned or raised.
type result struct {
	c *client

	Value json.RawMessage // bytes come as a string, one character a byte
	Error *string         // text of the exception; nil if there was none
}

// value fails the test if the call raised, and decodes what it returned.
func (r result) value(into any) {
	r.c.t.Helper()
	if r.Error != nil {
		r.c.t.Fatalf("%s: raised %s", r.c.name, *r.Error)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(r.Value, into); err != nil {
		r.c.t.Fatalf("%s: returned %s: %v", r.c.name, r.Value, err)
	}
}

// text is value for a string.
func (r result) text() string {
	r.c.t.Helper()
	var s string
	r.value(&s)
	return s
}

// raises fails the test unless the call raised an error whose text begins
// with prefix and has all of words in it.
func (r result) raises(prefix string, words ...string) {
	r.c.t.Helper()
	if r.Error == nil {
		r.c.t.Fatalf("%s: returned %s; want %q raised", r.c.name, r.Value, prefix)
	}
	if !strings.HasPrefix(*r.Error, prefix) || !contains(*r.Error, words...) {
		r.c.t.Fatalf("%s: raised %q; want %q with %q", r.c.name, *r.Error, prefix, words)
	}
}
