package server

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
)

// certified is a connection, or a host, whose peer may have shown a certificate. All transports have
// such.
type certified interface {
	// PeerURIs are the URI names of the certificate.
	PeerURIs() []string
}

// mayCall says whether the peer may make a call for a task. Every peer may make calls that act for no task
// and name none; for the others see [handler.mayBe].
func (h *handler) mayCall(c any, kind coord.Kind, t serry.TaskID) bool {
	return t.IsZero() && !kind.Row().ForTask || h.mayBe(c, t)
}

// mayBe says whether the peer may speak for a task: where names in certificates are bound to tasks, its
// certificate must name that one (A-TLS-10).
func (h *handler) mayBe(c any, t serry.TaskID) bool {
	if h.taskURI == "" {
		return true
	}
	peer, ok := c.(certified)
	return ok && slices.Contains(peer.PeerURIs(), taskURI(h.taskURI, t))
}

func taskURI(template string, t serry.TaskID) string {
	return strings.NewReplacer("{job}", url.PathEscape(t.Job), "{task}", strconv.Itoa(t.Index)).Replace(template)
}

// notYours is the answer to a call for a task that the caller's certificate does not name. It comes
// without the payload that clients take for word of the service about the job.
func notYours(template string, t serry.TaskID) rpc.Status {
	return rpc.Status{
		Code:    codes.PermissionDenied,
		Message: fmt.Sprintf("the certificate does not name task %v: want %s", t, taskURI(template, t)),
	}
}

// checkTaskURI says what is wrong with a template.
func (c Config) checkTaskURI() error {
	switch {
	case c.TaskURI == "":
		return nil
	case c.TLS == nil:
		return fmt.Errorf("task URI %q: want TLS with it", c.TaskURI)
	case !strings.Contains(c.TaskURI, "{task}"):
		return fmt.Errorf("task URI %q: want {task} in it, and {job} where there are several", c.TaskURI)
	}
	return nil
}
