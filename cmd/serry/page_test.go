package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/mtls"
)

// A transcript is what a process has written so far.
type transcript struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
		more chan struct{} // or nil: closed by the next Write
	}
}

// Write implements [io.Writer].
func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.more != nil {
		close(t.mu.more)
		t.mu.more = nil
	}
	return t.mu.Write(b)
}

// await returns the first match in what is written, now or within a minute, or nil.
func (t *transcript) await(re *regexp.Regexp) []string {
	for enough := time.After(time.Minute); ; {
		t.mu.Lock()
		m := re.FindStringSubmatch(t.mu.String())
		if t.mu.more == nil {
			t.mu.more = make(chan struct{})
		}
		more := t.mu.more
		t.mu.Unlock()
		if m != nil {
			return m
		}
		select {
		case <-more:
		case <-enough:
			return nil
		}
	}
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.String()
}

var pageAt = regexp.MustCompile(`serry: page at (https?://[^/]+/)(?:#token=(\S+))?`)

// findPage takes the address of the page from what the server of the script has written: the second line on stdout of serry serve,
// a line on stderr of serry run. $PAGE is then where it is, $TOKEN what lets people see it. An argument is the scheme that it must have.
func findPage(ts *testscript.TestScript, _ bool, args []string) {
	r := ts.Value(serverKey{}).(*running)
	var m []string
	if r.cmd.Args[1] == "run" {
		m = r.stderr.await(pageAt)
	} else {
		line, err := r.stdout.ReadString('\n')
		ts.Check(err)
		m = pageAt.FindStringSubmatch(line)
	}
	if m == nil {
		ts.Fatalf("no line says where the page is:\n%s", r.stderr)
	}
	if len(args) > 0 && !strings.HasPrefix(m[1], args[0]+"://") {
		ts.Fatalf("the page is at %s; want %s", m[1], args[0])
	}
	ts.Setenv("PAGE", m[1])
	if m[2] != "" {
		ts.Setenv("TOKEN", m[2])
	}
}

// request asks the page of a script.
func request(ctx context.Context, ts *testscript.TestScript, path string) *http.Response {
	r, err := http.NewRequestWithContext(ctx, "GET", strings.TrimSuffix(ts.Getenv("PAGE"), "/")+path, nil)
	ts.Check(err)
	if token := ts.Getenv("TOKEN"); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	reply, err := browserOf(ts).Do(r)
	ts.Check(err)
	return reply
}

// browserOf trusts the authority in the file $CA, where a script has one.
func browserOf(ts *testscript.TestScript) *http.Client {
	file := ts.Getenv("CA")
	if file == "" {
		return http.DefaultClient
	}
	pem, err := os.ReadFile(ts.MkAbs(file))
	ts.Check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
}

// fetch gets a path of the page and leaves the body in the file fetched.
func fetch(ts *testscript.TestScript, neg bool, args []string) {
	reply := request(context.Background(), ts, args[0])
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("fetched"), body, 0o600))
	if neg == (reply.StatusCode == http.StatusOK) {
		ts.Fatalf("GET %s = %s\n%s", args[0], reply.Status, body)
	}
}

// streams follows the page until a message matches.
func streams(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile(args[0])
	ctx, cancel := context.WithTimeout(context.Background(), untilPatience)
	defer cancel()
	reply := request(ctx, ts, "/api/v1/stream")
	defer reply.Body.Close()
	lines := bufio.NewScanner(reply.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if want.MatchString(lines.Text()) {
			return
		}
	}
	ts.Fatalf("the stream ended (%v) without a message that matches %q", lines.Err(), args[0])
}

// The token of a page comes from a file, or is drawn.
func TestPageToken(t *testing.T) {
	lab.Clause(t, "D-WEB-15")
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text, want string
		fails      bool
	}{
		"plain":    {"0123456789abcdef\n", "0123456789abcdef", false},
		"short":    {"0123456789abcde\n", "", true},
		"empty":    {"", "", true},
		"too long": {strings.Repeat("x", maxToken+1), "", true},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := pageSettings{tokenFile: file}
		if got, drawn, err := s.token(); got != c.want || drawn || (err != nil) != c.fails {
			t.Errorf("token of a file that is %s = %q, %v, %v; want %q", name, got, drawn, err, c.want)
		}
	}
	var s pageSettings
	if token, drawn, err := s.token(); len(token) < 32 || !drawn || err != nil {
		t.Errorf("token() = %q, %v, %v; want a drawn one", token, drawn, err)
	}
}

// An address without a host is one of loopback: a page is not for a network unless a user says so.
func TestPageAddress(t *testing.T) {
	lab.Clause(t, "D-WEB-15")
	for given, want := range map[string]string{":0": "localhost:0", "127.0.0.1:80": "127.0.0.1:80", "[::]:8480": "[::]:8480", "8480": "", "unix:/x": "", "": ""} {
		s := pageSettings{listen: given}
		err := s.check()
		if got := s.listen; want != "" && (got != want || err != nil) || want == "" && given != "" && err == nil {
			t.Errorf("--web %q = %q, %v; want %q", given, got, err, want)
		}
	}
	if err := (&pageSettings{hosts: []string{"x"}}).check(); err == nil {
		t.Error("--web-host without --web is taken; want an error")
	}
}

// The page of a server that stands by goes on when the leader is killed, and says what happened.
func TestPageOverAFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds of real time")
	}
	lab.Clause(t, "D-WEB-4")
	p := startPeers(t)
	ctx, cancel := context.WithTimeout(t.Context(), untilPatience)
	defer cancel()
	leader := pageOf(t, p.addresses[0]).leader(t, ctx)
	standby := p.addresses[0]
	if standby == leader {
		standby = p.addresses[1]
	}
	page := pageOf(t, standby)
	reply := page.get(t, ctx, "api/v1/stream")
	defer reply.Body.Close()
	lines := bufio.NewScanner(reply.Body)
	lines.Buffer(nil, 1<<20)
	await := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("the stream of the standby ended (%v) without %q", lines.Err(), text)
	}
	await(`"states":"-2"`)
	dead := p.killLeader(t, leader)
	await("coordinator failed over from " + dead + " to ")
	if now := page.leader(t, ctx); now == dead {
		t.Errorf("the page says that %s leads, which was killed", now)
	}
}

// A testPage is the page of a server, as serry serve --web has it.
type testPage struct{ url, token string }

func pageOf(t *testing.T, address string) testPage {
	t.Helper()
	s := pageSettings{listen: "127.0.0.1:0"}
	p, err := s.open(newPageSource(address, mtls.Files{}), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	url, token, _ := strings.Cut(p.url, "#token=")
	return testPage{url, token}
}

func (p testPage) get(t *testing.T, ctx context.Context, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", p.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	reply, err := http.DefaultClient.Do(r)
	if err != nil || reply.StatusCode != http.StatusOK {
		t.Fatalf("GET %s = %v, %v; want 200", path, reply, err)
	}
	return reply
}

// leader is the server that leads, as the page says.
func (p testPage) leader(t *testing.T, ctx context.Context) string {
	t.Helper()
	reply := p.get(t, ctx, "api/v1/job")
	defer reply.Body.Close()
	var s wire.Status
	if err := json.NewDecoder(reply.Body).Decode(&s); err != nil || s.Leader == "" {
		t.Fatalf("the page names no leader: %+v, %v", s, err)
	}
	return s.Leader
}

// On a terminal a job has a page without being told, unless it is told to have none. It is told of once, before the job begins.
func TestPageOnATerminal(t *testing.T) {
	lab.Clause(t, "D-WEB-15")
	for _, more := range [][]string{nil, {"--no-web"}} {
		mine, its := newTerminal(t)
		cmd := exec.Command("serry", append(append([]string{"run"}, more...), "--", "true")...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = its, its, its
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var seen bytes.Buffer
		sees(t, mine, &seen, "ended well")
		if err := cmd.Wait(); err != nil {
			t.Errorf("serry run %v = %v; want it to end well", more, err)
		}
		before, _, _ := strings.Cut(seen.String(), "serry: attempt 1")
		if got := strings.Count(before, "page at http://127.0.0.1:") + strings.Count(before, "page at http://[::1]:"); got != 1-len(more) || strings.Count(seen.String(), "page at") != got {
			t.Errorf("serry run %v on a terminal tells of %d pages; want %d:\n%q", more, got, 1-len(more), seen.String())
		}
	}
}
