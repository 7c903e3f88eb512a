package replay

import (
	"bytes"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rewrite = flag.Bool("rewrite", false, "write the transcripts anew")

// A transport serves the calls of a server until stop is called, which returns how serving ended.
type transport func(t *testing.T, s *server.Server, l net.Listener) (stop func() error)

// byFront serves by package front, as the product does.
func byFront(t *testing.T, s *server.Server, l net.Listener) (stop func() error) {
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return func() error {
		s.Shutdown(t.Context())
		return <-served
	}
}

// byOracle serves by grpc-go.
func byOracle(t *testing.T, s *server.Server, l net.Listener) (stop func() error) {
	oracle, served := lab.NewOracle(s), make(chan error, 1)
	go func() { served <- oracle.Serve(l) }()
	return func() error {
		s.Shutdown(t.Context())
		oracle.Shutdown(t.Context())
		return <-served
	}
}

// TestReplay plays every recording to a server behind package front, and to one behind grpc-go, and
// compares how the calls end, with each other and with the transcript. The front gets it as it was
// recorded, too, several calls at a time.
func TestReplay(t *testing.T) {
	lab.Clause(t, "F-51")
	files, err := filepath.Glob(recordingFile("*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d recordings, error %v; want some", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".rec"), func(t *testing.T) {
			asSent := load(t, file)
			byFrame := asSent.byFrame()
			grpcGo := byFrame.play(t, byOracle)
			if diff := cmp.Diff(grpcGo, byFrame.play(t, byFront)); diff != "" {
				t.Errorf("the transports differ (-grpc +front):\n%s", diff)
			}
			if diff := cmp.Diff(grpcGo, asSent.play(t, byFront)); diff != "" {
				t.Errorf("as it was recorded, the calls end otherwise (-grpc +front):\n%s", diff)
			}
			compare(t, strings.TrimSuffix(file, ".rec")+".txt", grpcGo)
		})
	}
}

// compare holds a transcript to the one on file.
func compare(t *testing.T, path string, got []string) {
	t.Helper()
	text := strings.Join(got, "\n") + "\n"
	if *rewrite {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("%s differs (-want +got); if that is meant, run with -rewrite:\n%s", path, diff)
	}
}

// play runs a server in virtual time, does to it what the clients did, when they did it, and returns
// how every call ended.
func (r *recording) play(t *testing.T, serve transport) (ends []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(r.config())
		if err != nil {
			t.Fatal(err)
		}
		l := bufconn.Listen(1 << 20)
		stop := serve(t, s, l)
		ends = r.playTo(t, l)
		if err := stop(); err != nil {
			t.Errorf("Serve() = %v", err)
		}
	})
	return ends
}

// playTo plays to whoever listens. After every act it waits until the server has nothing left to do.
func (r *recording) playTo(t *testing.T, l *bufconn.Listener) []string {
	t.Helper()
	start := time.Now()
	var lines []*line
	for _, a := range r.acts {
		time.Sleep(time.Until(start.Add(a.at)))
		for len(lines) <= a.conn {
			lines = append(lines, newLine(t, l))
		}
		if a.sent == nil {
			lines[a.conn].close()
		} else {
			lines[a.conn].send(t, a.sent)
		}
		synctest.Wait()
	}
	var ends []string
	for i, k := range lines {
		k.close()
		ends = append(ends, transcript(t, i, k.sent.Bytes(), k.received)...)
	}
	return ends
}

// A line is one connection of a replay.
type line struct {
	nc   net.Conn
	sent bytes.Buffer

	ended    chan struct{} // closed at the end of what the server says
	received []byte        // valid then
}

func newLine(t *testing.T, l *bufconn.Listener) *line {
	t.Helper()
	nc, err := l.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k := &line{nc: nc, ended: make(chan struct{})}
	go k.read()
	return k
}

// read takes all that the server says, so that it is never held up.
func (k *line) read() {
	defer close(k.ended)
	buf := make([]byte, 64<<10)
	for {
		n, err := k.nc.Read(buf)
		k.received = append(k.received, buf[:n]...)
		if err != nil {
			return
		}
	}
}

func (k *line) send(t *testing.T, b []byte) {
	t.Helper()
	k.sent.Write(b)
	if _, err := k.nc.Write(b); err != nil {
		t.Errorf("the server closed a connection: %v", err)
	}
}

func (k *line) close() {
	k.nc.Close()
	<-k.ended
}
