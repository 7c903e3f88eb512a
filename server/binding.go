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

// This file binds tasks to certificates. Without it a certificate that lets a client in lets it be any task: a
// process of one task could register as another and take its place. With Config.TaskURI each call, and each
// word of a host about a life, must come with a certificate that names the task.

// certified is a connection, or a host, whose peer may have shown a certificate. The connections of all
// transports implement it.
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

// taskURI is the name that the certificate of a task must have.
func taskURI(template string, t serry.TaskID) string {
	return strings.NewReplacer("{job}", url.PathEscape(t.Job), "{task}", strconv.Itoa(t.Index)).Replace(template)
}

// notYours is the answer to a call for a task that the caller's certificate does not name. It has no payload:
// stock clients take an error with one for a statement about the job, and would end it.
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
