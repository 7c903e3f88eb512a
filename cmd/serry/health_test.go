package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// A probe asks for the pages of one process, which serves them on a socket.
type probe struct {
	socket string
	cmd    *exec.Cmd
}

// get is the status and the text of a page; 0 if nothing answers.
func (p *probe) get(t *testing.T, page string) (int, string) {
	t.Helper()
	c := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", p.socket)
		},
	}}
	r, err := c.Get("http://serry/" + page)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(text)
}

// becomes waits until /readyz has a status and a text. The process must be alive all the while.
func (p *probe) becomes(t *testing.T, status int, text string) {
	t.Helper()
	began, tick := time.Now(), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		got, why := p.get(t, "readyz")
		if got == status && strings.Contains(why, text) {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%s: /readyz is %d, %q after a minute; want %d, %q", p.socket, got, why, status, text)
		}
		<-tick.C
	}
	if got, why := p.get(t, "livez"); got != http.StatusOK {
		t.Errorf("%s: /livez is %d, %s; want 200", p.socket, got, why)
	}
}

// has checks lines of /metrics.
func (p *probe) has(t *testing.T, lines ...string) {
	t.Helper()
	status, page := p.get(t, "metrics")
	for _, line := range lines {
		if status != http.StatusOK || !strings.Contains(page, "\n"+line) {
			t.Errorf("%s: /metrics is %d and has no line %q:\n%s", p.socket, status, line, page)
		}
	}
}

func (p *probe) leads(t *testing.T) bool {
	t.Helper()
	_, page := p.get(t, "metrics")
	return strings.Contains(page, "\nserry_leader 1\n")
}

func (p *probe) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

// probed starts serry with its pages on a socket.
func probed(t *testing.T, dir, name string, args ...string) *probe {
	t.Helper()
	p := &probe{socket: filepath.Join(dir, name)}
	p.cmd = exec.Command("serry", append(args, "--metrics-listen", "unix:"+p.socket)...)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// Three servers and a relay, from the first server alone to the last one alone: every process is alive all the
// time, and ready when a call would be answered.
func TestHealthPages(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds of real time")
	}
	lab.Clause(t, "DLVT-10", "DLV-30", "DLV-40")
	ports, dir := freePorts(t, 6), t.TempDir()
	list := fmt.Sprintf("a=127.0.0.1:%s,b=127.0.0.1:%s,c=127.0.0.1:%s", ports[3], ports[4], ports[5])
	addresses := fmt.Sprintf("127.0.0.1:%s,127.0.0.1:%s,127.0.0.1:%s", ports[0], ports[1], ports[2])
	serve := func(i int) *probe {
		name := string(rune('a' + i))
		return probed(t, dir, "health-"+name, "serve", "--tasks", "2", "--listen", "127.0.0.1:"+ports[i],
			"--peers", list, "--name", name, "--data-dir", filepath.Join(dir, name))
	}
	relay := probed(t, dir, "health-relay", "relay", "--upstream", addresses, "--listen", "unix:"+filepath.Join(dir, "relay"))
	relay.becomes(t, http.StatusServiceUnavailable, "the service is")
	relay.has(t, "serry_relay_down 1\n", "serry_relay_give_up_seconds 300\n", "serry_build_info{version=")

	servers := []*probe{serve(0)}
	servers[0].becomes(t, http.StatusServiceUnavailable, "the store is not open yet")
	servers[0].has(t, "serry_leader 0\n", "serry_term 0\n", "serry_relay_down 1\n", "serry_build_info{version=")
	servers = append(servers, serve(1), serve(2))
	leader := -1
	for i, s := range servers {
		s.becomes(t, http.StatusOK, "ok")
		s.has(t, "serry_term ", "serry_relay_down 0\n", "serry_heartbeat_timeout_seconds 100\n", `serry_limit{name="keys"} `)
		if s.leads(t) {
			leader = i
		}
	}
	if leader < 0 {
		t.Fatal("no server shows that it leads")
	}
	relay.becomes(t, http.StatusOK, "ok")

	servers[leader].kill()
	servers = append(servers[:leader], servers[leader+1:]...)
	for _, s := range servers {
		s.becomes(t, http.StatusOK, "ok")
	}
	relay.becomes(t, http.StatusOK, "ok")
	if servers[0].leads(t) == servers[1].leads(t) {
		t.Error("not one of the two servers shows that it leads")
	}
	servers[0].kill()
	servers[1].becomes(t, http.StatusServiceUnavailable, "")
	relay.becomes(t, http.StatusServiceUnavailable, "the service is out of reach")
	servers[1].has(t, "serry_leader 0\n", "serry_relay_down 1\n")
}
