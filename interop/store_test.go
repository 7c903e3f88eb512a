package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab"
)

// T-REAL-3: every key call of the Python client, with the texts that programs
// match on.
func TestKeys(t *testing.T) {
	lab.Clause(t, "T-REAL-3", "A-PY-3", "A-PY-4", "A-KV-1", "A-KV-2", "A-KV-6", "A-KV-7", "A-KV-8", "A-KV-9", "A-KEY-1", "A-KEY-2",
		"IT-23", "IT-24", "IT-25", "IT-26", "IT-27", "PJ-22", "PJ-23", "PJ-24", "PJ-25", "PJ-26", "PJ-27", "PJ-28", "PJ-29", "PJ-30")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "2")
		clients := join(t, srv.addr, 2, clientConfig{venv: v})
		writesAndReads(clients[0], clients[1])
		blockingGets(clients[0], clients[1])
		directories(clients[0], clients[1])
		oddKeys(clients[0], clients[1])
		leave(clients...)
	})
}

func writesAndReads(a, b *client) {
	a.t.Helper()
	a.call("key_value_set", "once", "first").value(nil)
	b.call("key_value_set", "once", "second").raises("ALREADY_EXISTS: key once already exists.")
	b.holds("once", "first")
	b.call("key_value_set", "once", "second", true).value(nil)
	a.holds("once", "second")
	a.call("key_value_try_get", "nowhere").raises("NOT_FOUND: Config key nowhere not found.")

	every := string(allBytes())
	a.call("key_value_set_bytes", "bytes", every).value(nil)
	if got := b.call("key_value_try_get_bytes", "bytes").text(); got != every {
		b.t.Errorf("key_value_try_get_bytes = %q; want every byte once", got)
	}
	if got := b.call("blocking_key_value_get_bytes", "bytes", 1000).text(); got != every {
		b.t.Errorf("blocking_key_value_get_bytes = %q; want every byte once", got)
	}
	a.call("key_value_set", "empty", "").value(nil)
	b.holds("empty", "")

	a.call("key_value_set", "count", "10").value(nil)
	for _, step := range []struct {
		key       string
		add, want int
	}{{"count", 1, 11}, {"count", -20, -9}, {"new count", 2, 2}} {
		var got int
		b.call("key_value_increment", step.key, step.add).value(&got)
		if got != step.want {
			b.t.Errorf("key_value_increment(%q, %d) = %d; want %d", step.key, step.add, got, step.want)
		}
		a.holds(step.key, fmt.Sprint(step.want))
	}
	a.call("key_value_increment", "once", 1).raises("FAILED_PRECONDITION")
}

// blockingGets waits for a key that comes, and for one that does not.
func blockingGets(a, b *client) {
	a.t.Helper()
	b.begin("blocking_key_value_get", "later", 60_000)
	a.call("key_value_set", "later", "here").value(nil)
	if got := b.end().text(); got != "here" {
		b.t.Errorf("blocking_key_value_get = %q; want %q", got, "here")
	}
	a.call("blocking_key_value_get", "never", 100).raises("DEADLINE_EXCEEDED: GetKeyValue() timed out with key: never")
}

func directories(a, b *client) {
	a.t.Helper()
	want := map[string]string{"dir/a": "1", "dir/deep/b": "2", "dir/deep/c": "3"}
	for key, value := range want {
		a.call("key_value_set", key, value).value(nil)
	}
	a.call("key_value_set", "dir", "not below itself").value(nil)
	a.call("key_value_set", "dirt", "not below dir").value(nil)
	if diff := cmp.Diff(want, b.dir("dir/")); diff != "" {
		b.t.Errorf("key_value_dir_get(dir/) (-want +got)\n%s", diff)
	}
	b.call("key_value_delete", "dir/deep/b").value(nil)
	a.call("blocking_key_value_get", "dir/deep/b", 100).raises("DEADLINE_EXCEEDED")
	a.holds("dir/deep/c", "3")
	b.call("key_value_delete", "dir/deep").value(nil)
	if diff := cmp.Diff(map[string]string{"dir/a": "1"}, a.dir("dir")); diff != "" {
		a.t.Errorf("key_value_dir_get(dir) after deletes (-want +got)\n%s", diff)
	}
	b.call("key_value_delete", "dir/").value(nil)
	for _, dir := range []string{"dir/", "no/such/dir/"} {
		if got := a.dir(dir); len(got) != 0 {
			a.t.Errorf("key_value_dir_get(%s) = %v; want nothing", dir, got)
		}
	}
	a.holds("dirt", "not below dir")

	const values, size = 10, 1 << 20
	sizes := map[string]int{}
	for i := range values {
		key := fmt.Sprintf("large/%d", i)
		a.call("set_noise", key, size).value(nil)
		sizes[key] = size
	}
	got := map[string]int{}
	b.call("dir_sizes", "large/").value(&got)
	if diff := cmp.Diff(sizes, got); diff != "" {
		b.t.Errorf("directory of 10 MiB (-want +got)\n%s", diff)
	}
}

// oddKeys uses the alphabet that clique keys bring along, and a long key.
func oddKeys(a, b *client) {
	a.t.Helper()
	clique := "root_process: 0; clique: devices=[0,2048]; communication_id=1; incarnations=[7,8]"
	for _, key := range []string{clique, "cpu:gloo/0,2048/1", "ключ/鍵", strings.Repeat("device,", 20_000)} {
		a.call("key_value_set", key, "v").value(nil)
		b.holds(key, "v")
	}
}

// T-REAL-17: a client that writes before it connects is served, in the new
// dialect too, where it names service incarnation 0.
func TestKeySetBeforeConnect(t *testing.T) {
	lab.Clause(t, "T-REAL-17", "A-TOL-2", "C-INC-2")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 1, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "1")
		c := newClient(t, srv.addr, clientConfig{venv: v})
		c.call("key_value_set", "early", "bird").value(nil)
		c.holds("early", "bird")
		connect(c)
		c.holds("early", "bird")
		leave(c)
	})
}

// jax shares compiled programs through the store: values of hundreds of MiB.
// Half a GiB goes as it is; what gzip is asked for goes compressed.
func TestLargeValue(t *testing.T) {
	lab.Clause(t, "C-WIRE-2", "C-LIM-2", "A-CH-2", "A-KEY-2")
	skipShort(t)
	t.Parallel()
	for _, size := range []struct {
		name  string
		bytes int
		plain bool
	}{{"512MiB", 512 << 20, true}, {"64MiB gzip", 64 << 20, false}} {
		t.Run(size.name, func(t *testing.T) {
			beside(t, 2)
			srv := serve(t, "--tasks", "2")
			clients := join(t, srv.addr, 2, clientConfig{venv: jaxNew, plain: size.plain})
			clients[1].begin("get_digest", "executable", 300_000)
			want := clients[0].call("set_noise", "executable", size.bytes).text()
			if got := clients[1].end().text(); got != want {
				t.Errorf("digest of what was got = %s; want %s, of what was set", got, want)
			}
			barrier("still here", clients...)
			leave(clients...)
		})
	}
}

// holds fails the test unless key has that value.
func (c *client) holds(key, want string) {
	c.t.Helper()
	if got := c.call("key_value_try_get", key).text(); got != want {
		c.t.Errorf("%s: key_value_try_get(%.40q) = %q; want %q", c.name, key, got, want)
	}
}

// dir lists a directory.
func (c *client) dir(key string) map[string]string {
	c.t.Helper()
	var entries [][2]string
	c.call("key_value_dir_get", key).value(&entries)
	values := map[string]string{}
	for _, e := range entries {
		values[e[0]] = e[1]
	}
	return values
}

// allBytes returns each byte once, as characters below 256, which is how
// bytes travel to the client process.
func allBytes() []rune {
	all := make([]rune, 256)
	for i := range all {
		all[i] = rune(i)
	}
	slices.Reverse(all)
	return all
}
