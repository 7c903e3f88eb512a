package page_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab"
)

// incident is the journal of a job of three ranks, of which the last was lost at a barrier.
var incident = filepath.Join("..", "..", "cmd", "serry", "testdata", "incident.journal")

// tools are a serry that was built for a test, and a file with the token of its pages.
type tools struct{ dir, serry, token string }

func buildTools(t *testing.T) tools {
	t.Helper()
	dir := t.TempDir()
	k := tools{dir, filepath.Join(dir, "serry"), filepath.Join(dir, "token")}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", k.serry, "github.com/serry-dev/serry/cmd/serry").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := os.WriteFile(k.token, []byte(stageToken), 0o600); err != nil {
		t.Fatal(err)
	}
	return k
}

// A program is a command of serry that runs and has a page.
type program struct {
	cmd *exec.Cmd
	out io.Reader

	address, url string // of the service, and of the page; set by await
}

// start starts a command that serves a page, and waits until it says where.
func (k tools) start(t *testing.T, args ...string) *program {
	t.Helper()
	p := k.begin(t, args...)
	p.await(t)
	return p
}

// begin starts a command. It is killed at the end of the test.
func (k tools) begin(t *testing.T, args ...string) *program {
	t.Helper()
	cmd := exec.Command(k.serry, append(args, "--web-token-file", k.token)...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+k.dir)
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &program{cmd: cmd, out: out}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("serry %s:\n%s", strings.Join(args, " "), log.String())
		}
	})
	return p
}

// await waits until a command says where its page is.
func (p *program) await(t *testing.T) {
	t.Helper()
	lines := bufio.NewScanner(p.out)
	for p.url == "" && lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) > 0 && p.address == "" {
			p.address = words[len(words)-1]
		}
		_, p.url, _ = strings.Cut(lines.Text(), "page at ")
	}
	if p.url == "" {
		t.Fatalf("%s does not say where its page is", p.cmd)
	}
	go func() { _, _ = io.Copy(io.Discard, p.out) }() // it ends with the process
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

// One case of the driver, against a real page.
func (b browser) plays(t *testing.T, name string, args ...string) {
	t.Helper()
	r, ok := b.drive(t, args...)[name]
	if !ok || r.Error != "" {
		t.Errorf("%s: %s", name, r.Error)
	}
	if r.Said != "" {
		t.Log(r.Said)
	}
}

// freePorts finds ports that no process listens on.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var all []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // after all are found
		_, port, _ := net.SplitHostPort(l.Addr().String())
		all = append(all, port)
	}
	return all
}

// The server that leads is killed while its page, that of a server that stands by and that of a relay are open. The others go on and say what
// happened; that of the killed one keeps what it has, says so, and leads to the others.
func TestLeaderKilledUnderPages(t *testing.T) {
	lab.Clause(t, "D-WEB-4", "TD-WEB-1")
	browser := findBrowser(t)
	k := buildTools(t)
	ports := freePorts(t, 6)
	names := []string{"a", "b", "c"}
	var peers, upstream []string
	for i, name := range names {
		peers = append(peers, name+"=127.0.0.1:"+ports[i])
		upstream = append(upstream, "127.0.0.1:"+ports[3+i])
	}
	servers := make([]*program, len(names))
	for i, name := range names {
		servers[i] = k.begin(t, "serve", "--tasks", "2", "--listen", upstream[i], "--peers", strings.Join(peers, ","), "--name", name,
			"--data-dir", filepath.Join(k.dir, name), "--web", "127.0.0.1:0")
	}
	for _, p := range servers { // each waits for a majority
		p.await(t)
	}
	relay := k.start(t, "relay", "--upstream", strings.Join(upstream, ","), "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0")

	leader := slices.Index(upstream, leads(t, relay.url))
	if leader < 0 {
		t.Fatalf("the page of the relay names a leader that is none of %v", upstream)
	}
	stage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		servers[leader].kill()
		_, _ = io.WriteString(w, "{}")
	}))
	defer stage.Close()
	plot, err := json.Marshal(map[string]any{
		"stage": stage.URL, "killed": servers[leader].url, "address": upstream[leader], "name": names[leader],
		"standby": servers[(leader+1)%3].url, "standbyName": names[(leader+1)%3], "relay": relay.url,
	})
	if err != nil {
		t.Fatal(err)
	}
	browser.plays(t, "the leader is killed", "failover", string(plot), stageToken)
}

// leads is the address of the server that leads, as a page says.
func leads(t *testing.T, page string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", page+"api/v1/job", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+stageToken)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var s struct {
		Leader string `json:"leader"`
	}
	if err := json.NewDecoder(reply.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s.Leader
}

// An incident is looked at after the fact: the page of a journal, with a slider over the time.
func TestReplayedJob(t *testing.T) {
	lab.Clause(t, "D-WEB-4", "TD-WEB-1")
	browser := findBrowser(t)
	k := buildTools(t)
	p := k.start(t, "replay", "--web", incident)
	browser.plays(t, "a journal with a slider", "journal", p.url, stageToken)
}

// With the certificate of a server its page speaks HTTPS, and is live.
func TestPageOverTLS(t *testing.T) {
	lab.Clause(t, "D-WEB-15")
	browser := findBrowser(t)
	k := buildTools(t)
	certs := filepath.Join(k.dir, "certs")
	for _, args := range [][]string{{"cert", "new", certs}, {"cert", "issue", certs, "coord", "--host", "127.0.0.1"}} {
		if out, err := exec.CommandContext(t.Context(), k.serry, args...).CombinedOutput(); err != nil {
			t.Fatalf("serry %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	p := k.start(t, "serve", "--tasks", "4", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0",
		"--tls-cert", filepath.Join(certs, "coord.pem"), "--tls-key", filepath.Join(certs, "coord-key.pem"), "--tls-ca", filepath.Join(certs, "ca.pem"))
	browser.plays(t, "a page over TLS", "tls", p.url, stageToken)
}

// The journal of a job that hung tells what the launcher said of it, and the time of day.
func TestReplayedHang(t *testing.T) {
	lab.Clause(t, "D-WEB-4", "TD-WEB-1")
	browser := findBrowser(t)
	k := buildTools(t)
	dir := filepath.Join(k.dir, "state")
	server := k.start(t, "serve", "--tasks", "3", "--listen", "127.0.0.1:0", "--store", "file:"+dir, "--web", "127.0.0.1:0")
	members := make([]*client.Member, 3)
	errs := make([]error, len(members))
	var joining sync.WaitGroup
	for i := range members { // each waits for the others
		joining.Go(func() {
			members[i], errs[i] = client.Join(t.Context(), client.Config{Address: server.address, Task: serry.TaskID{Job: "worker", Index: i}})
		})
	}
	joining.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("Join() = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for _, m := range members[:2] {
		waiting.Go(func() { _ = m.Barrier(ctx, "save-100", serry.BarrierOptions{Timeout: time.Hour}) }) // the third never comes
	}
	awaitStream(t, server.url, `"arrived":2,"members":3`)
	began := time.Now().Add(-time.Hour)
	text, err := json.Marshal(diagnose.HangReport{Version: diagnose.HangReportVersion, Begun: began, Hang: &diagnose.Hang{
		Kind: diagnose.HangStill, Stage: diagnose.Stuck, Grade: diagnose.Sure, Since: time.Hour - 150*time.Second, Stalled: time.Hour - 140*time.Second,
		Ranks: []diagnose.RankEvidence{{Rank: 2, PID: 2077, Host: "node-b", Condition: diagnose.Condition{Class: "static", At: "load_batch (train.py:10)"}}},
		Waits: []diagnose.HangWait{{Barrier: "save-100", Ranks: []int{0, 1}, Count: 2}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := members[0].KV().Put(t.Context(), diagnose.HangKey, text); err != nil { // as the launcher does
		t.Fatalf("Put() = %v", err)
	}
	server.kill()
	cancel()
	waiting.Wait()
	p := k.start(t, "replay", "--web", dir)
	stage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.kill()
		_, _ = io.WriteString(w, "{}")
	}))
	defer stage.Close()
	browser.plays(t, "a journal of a hang", "hang", p.url, stageToken, stage.URL)
}

// awaitStream follows a page until a message has some text.
func awaitStream(t *testing.T, page, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", page+"api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+stageToken)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	lines := bufio.NewScanner(reply.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("the stream of %s ended (%v) without %s", page, lines.Err(), text)
}
