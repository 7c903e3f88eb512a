package member_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/member"
)

// childEnv makes a process of this test a member: name, folder, and the addresses of all.
const childEnv = "SERRY_MEMBER_CHILD"

func TestMain(m *testing.M) {
	args := strings.Fields(os.Getenv(childEnv))
	if len(args) == 0 {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, args[0], serve(context.Background(), args[0], args[1], args[2:]))
	os.Exit(1)
}

// serve is a member whose server appends numbers whenever it leads, and says what happens. It ends only
// by an error.
func serve(ctx context.Context, name, dir string, addresses []string) error {
	peers := make(map[string]string)
	for i, a := range addresses {
		peers[string(rune('a'+i))] = a
	}
	m, err := member.Start(ctx, member.Config{Name: name, Dir: dir, Peers: peers})
	if err != nil {
		return err
	}
	st, err := m.Open(ctx, etcd.Config{LeaseTTL: time.Second})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	go obey(ctx, st)
	for {
		r, err := st.Campaign(ctx, store.Candidate{Address: name})
		if err != nil {
			return err
		}
		if err := reign(ctx, r); !errors.Is(err, store.ErrDeposed) {
			return err
		}
	}
}

// obey deposes whoever leads, for each line that it is told.
func obey(ctx context.Context, st store.Store) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if l, err := st.Leader(ctx); err == nil {
			_ = st.Depose(ctx, l)
		}
	}
}

// reign counts the journal, and goes on counting.
func reign(ctx context.Context, r store.Reign) error {
	snapshot, batches, err := r.Load(ctx)
	if err != nil {
		return err
	}
	n := 0
	if snapshot != nil {
		if n, err = strconv.Atoi(string(snapshot)); err != nil {
			return err
		}
	}
	for b, err := range batches {
		if err != nil {
			return err
		}
		if n++; string(b) != strconv.Itoa(n) {
			return fmt.Errorf("batch %s in place of %d", b, n)
		}
	}
	fmt.Println("leads", r.Term(), n)
	for {
		n++
		if err := r.Append(ctx, strconv.AppendInt(nil, int64(n), 10)); err != nil {
			return err
		}
		fmt.Println("has", r.Term(), n)
		if n%50 == 0 {
			if err := r.Save(ctx, r.Mark(), strconv.AppendInt(nil, int64(n), 10), nil); err != nil {
				return err
			}
		}
	}
}

// A news is a line that a member has said.
type news struct {
	from string
	what string
	term uint64
	n    int
}

// A cluster is members in processes of their own.
type cluster struct {
	t         *testing.T
	addresses []string
	dir       string
	running   map[string]*exec.Cmd
	stdin     map[string]io.Writer
	news      chan news
	has       int    // the highest number acknowledged
	term      uint64 // the highest term
}

func (c *cluster) start(name string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(append([]string{name, filepath.Join(c.dir, name)}, c.addresses...), " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if c.stdin[name], err = cmd.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.running[name] = cmd
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n := news{from: name}
			_, _ = fmt.Sscan(lines.Text(), &n.what, &n.term, &n.n)
			c.news <- n
		}
		_ = cmd.Wait()
		c.news <- news{from: name, what: "gone"}
	}()
}

// until takes the news up to one, and checks all of them.
func (c *cluster) until(found func(news) bool) news {
	c.t.Helper()
	for {
		var n news
		select {
		case n = <-c.news:
		case <-time.After(2 * time.Minute):
			c.t.Fatalf("nothing happens; acknowledged: %d", c.has)
		}
		switch n.what {
		case "leads":
			if n.term <= c.term || n.n < c.has {
				c.t.Fatalf("%s leads with term %d and %d batches; want more than %d and at least %d", n.from, n.term, n.n, c.term, c.has)
			}
			c.term, c.has = n.term, n.n
		case "has":
			if n.term < c.term || n.n <= c.has {
				c.t.Fatalf("%s of term %d has batch %d, after term %d and batch %d", n.from, n.term, n.n, c.term, c.has)
			}
			c.has = n.n
		}
		if found(n) {
			return n
		}
	}
}

func is(what, from string) func(news) bool {
	return func(n news) bool { return n.what == what && (from == "" || n.from == from) }
}

// Three processes share a journal. Whoever leads is killed; another goes on where it was, and the one
// that was killed comes back and is needed, because the next is killed then. C-LOG-3, C-TERM-1, NEW-50.
func TestKilled(t *testing.T) {
	dir, err := os.MkdirTemp("", "serry")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c := &cluster{t: t, dir: dir, addresses: reserve(t, 3), running: map[string]*exec.Cmd{}, stdin: map[string]io.Writer{}, news: make(chan news, 100)}
	names := []string{"a", "b", "c"}
	for _, name := range names {
		c.start(name)
	}
	leader := c.until(is("leads", "")).from
	for round := range 3 {
		goal := c.has + 60
		c.until(func(n news) bool { return n.n >= goal })
		if err := c.running[leader].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.until(is("gone", leader))
		if round > 0 { // it is known to be dead: no need to wait for its lease
			other := names[(slices.Index(names, leader)+1)%3]
			fmt.Fprintln(c.stdin[other], "depose")
		}
		killed, began := leader, time.Now()
		leader = c.until(is("leads", "")).from
		t.Logf("round %d: %s leads %v after %s was killed", round, leader, time.Since(began).Round(time.Millisecond), killed)
		c.start(killed)
		c.until(is("ready", killed))
	}
	for _, name := range names {
		_ = c.running[name].Process.Kill()
		c.until(is("gone", name))
	}
}

// reserve finds addresses that nobody listens on.
func reserve(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	alone := map[string]string{"a": reserve(t, 1)[0]}
	lost := map[string]string{"a": reserve(t, 1)[0], "b": reserve(t, 1)[0]}
	for _, c := range []struct {
		name, want string
		cfg        member.Config
	}{
		{"not one of the peers", `"x" is none of the peers [a]`, member.Config{Name: "x", Peers: alone, Dir: t.TempDir()}},
		{"no port", "missing port", member.Config{Name: "a", Peers: map[string]string{"a": "localhost"}, Dir: t.TempDir()}},
		{"a path too long", "shorter", member.Config{Name: "a", Peers: alone, Dir: filepath.Join(t.TempDir(), strings.Repeat("long", 30))}},
		{"no majority", "no majority of the 2 members", member.Config{Name: "a", Peers: lost, Dir: t.TempDir()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			m, err := member.Start(ctx, c.cfg)
			if err == nil {
				m.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Start() = %v; want an error with %q", err, c.want)
			}
		})
	}
}
