package web

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab"
)

// A fakeNetwork is a job whose service has two servers.
type fakeNetwork struct {
	*fakeSource
	net struct {
		sync.Mutex
		servers []ServerLink
		err     error
		hangs   bool
		asked   int
	}
}

func (f *fakeNetwork) Servers(ctx context.Context) ([]ServerLink, error) {
	f.net.Lock()
	f.net.asked++
	servers, err, hangs := slices.Clone(f.net.servers), f.net.err, f.net.hangs
	f.net.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return servers, err
}

func (f *fakeNetwork) become(servers []ServerLink, err error, hangs bool) {
	f.net.Lock()
	defer f.net.Unlock()
	f.net.servers, f.net.err, f.net.hangs = servers, err, hangs
}

// Viewers are told of the servers and their pages. The servers are asked every 10 s while there are viewers; one that hangs holds up nothing, and
// what was known stays.
func TestServers(t *testing.T) {
	lab.Clause(t, "D-WEB-4", "D-WEB-10")
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNetwork{fakeSource: stalled()}
		two := []ServerLink{{Name: "a", Address: "a:1", State: "leads", Page: "http://a:8480/", Here: true}, {Name: "b", Address: "b:1", State: "stands by", Page: "http://b:8480/"}}
		f.become(two, nil, false)
		s := newTestServer(t, f)
		defer s.Close()
		s.hub.join()
		defer s.hub.leave()
		time.Sleep(time.Minute)
		if d := cmp.Diff(two, decode[Servers](t, get(s, "/api/v1/servers")).Servers); d != "" {
			t.Errorf("/servers differs (-want +got):\n%s", d)
		}
		sent := func() string {
			frames, _, _, _ := s.hub.after(cursor{}, []string{topicServers})
			if len(frames) != 1 {
				t.Fatalf("%d messages of servers; want 1", len(frames))
			}
			return string(frames[0])
		}
		if text := sent(); !strings.Contains(text, `{"name":"b","address":"b:1","state":"stands by","page":"http://b:8480/"}`) {
			t.Errorf("viewers are told %s; want the page of b", text)
		}
		if n := f.net.asked; n < 5 || n > 7 {
			t.Errorf("asked %d times in a minute; want about 6", n)
		}
		down := slices.Clone(two)
		down[1].State, down[1].Page = "down", ""
		f.become(down, nil, false)
		time.Sleep(2 * surveyPause)
		if text := sent(); !strings.Contains(text, `"state":"down"`) {
			t.Errorf("viewers are told %s; want that b is down", text)
		}
		looks := f.looks()
		f.become(nil, nil, true)
		time.Sleep(time.Minute)
		if n := f.looks() - looks; n < 100 {
			t.Errorf("%d questions to the service in a minute while a server hangs; want 120", n)
		}
		f.become(nil, errors.New("no network"), false)
		time.Sleep(2 * surveyPause)
		if text := sent(); !strings.Contains(text, `"state":"down"`) {
			t.Errorf("viewers are told %s; want what was known", text)
		}
	})
}
