package replay

import (
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
)

// A recorder is a service, and a proxy before it that writes down what its clients send.
type recorder struct {
	addr  string // of the proxy
	to    string // of the service
	start time.Time
	work  sync.WaitGroup

	mu struct {
		sync.Mutex
		conns     int
		recording recording
	}
}

// newRecorder serves jobs until the test ends. The service is behind grpc-go, which allows only
// frames of 16 KiB: what clients send it, every server takes.
func newRecorder(t *testing.T, jobs ...coord.Job) *recorder {
	t.Helper()
	r := new(recorder)
	r.mu.recording.jobs = jobs
	s, err := server.New(r.mu.recording.config())
	if err != nil {
		t.Fatal(err)
	}
	behind, before := listen(t), listen(t)
	r.to, r.addr = behind.Addr().String(), before.Addr().String()
	stop := byOracle(t, s, behind)
	r.work.Go(func() { r.accept(before) })
	t.Cleanup(func() {
		before.Close()
		stop()
		r.work.Wait()
	})
	return r
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (r *recorder) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		service, err := net.Dial("tcp", r.to)
		if err != nil {
			client.Close()
			continue
		}
		r.mu.Lock()
		conn := r.mu.conns
		r.mu.conns++
		r.mu.Unlock()
		r.work.Go(func() {
			r.pass(conn, service, client)
			service.Close()
			client.Close()
		})
		r.work.Go(func() { io.Copy(client, service) })
	}
}

// pass passes on what a client sends until it closes.
func (r *recorder) pass(conn int, service io.Writer, client io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if n > 0 {
			r.note(conn, slices.Clone(buf[:n]))
			if _, err := service.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			r.note(conn, nil)
			return
		}
	}
}

func (r *recorder) note(conn int, sent []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.start.IsZero() {
		r.start = time.Now()
	}
	r.mu.recording.acts = append(r.mu.recording.acts, act{time.Since(r.start), conn, sent})
}

// save writes what has been recorded so far.
func (r *recorder) save(t *testing.T, client string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.mu.recording.save(recordingFile(client)); err != nil {
		t.Fatal(err)
	}
}
