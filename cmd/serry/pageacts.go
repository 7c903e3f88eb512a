package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/launch"
	"github.com/serry-dev/serry/web"
	"github.com/serry-dev/serry/wire"
)

// pageActs change a job from its page, where --web-write allows it. They implement [web.Acts].
type pageActs struct {
	source *pageSource
	stops  bool       // the service may be told to end, as serry stop does
	job    *pageOfJob // that serry run has started; or nil
}

// A pageOfJob is the job of serry run, which begins after its page.
type pageOfJob struct{ atomic.Pointer[launch.Job] }

// Names implements [web.Acts].
func (a *pageActs) Names() []string {
	all := []string{web.ActPut, web.ActDelete}
	if a.job != nil {
		all = append(all, web.ActRestart, web.ActKill)
	}
	if a.stops || a.job != nil {
		all = append(all, web.ActStop)
	}
	return all
}

// Do implements [web.Acts].
func (a *pageActs) Do(ctx context.Context, act web.Act) (said string, err error) {
	switch act.Name {
	case web.ActRestart, web.ActKill:
		job := a.job.Load()
		if job == nil || act.Task.Job != wire.DefaultJob {
			return "", errNoService
		}
		return job.Fail(act.Task.Index, "was ended by a person, from the page", act.Name == web.ActRestart)
	case web.ActStop:
		if a.job != nil {
			return a.interrupt()
		}
	}
	r, err := a.source.open(ctx)
	if err != nil {
		return "", err
	}
	switch act.Name {
	case web.ActPut:
		return "", r.Put(ctx, act.Key, []byte(act.Value))
	case web.ActDelete:
		_, err := r.call(ctx, coord.DeleteKeyValue{Key: act.Key})
		return "", err
	case web.ActStop:
		ctx, cancel := r.brief(ctx)
		defer cancel()
		reply, err := r.lead(ctx, wire.LeadRequest{Stop: true})
		if err == nil && !reply.Stopping {
			err = errors.New("the server is too old to be told to stop")
		}
		return "the service ends, and with it the job", err
	}
	return "", fmt.Errorf("unknown act %q", act.Name)
}

// interrupt ends the job of serry run as Ctrl-C does.
func (a *pageActs) interrupt() (said string, err error) {
	job := a.job.Load()
	if job == nil {
		return "", errNoService
	}
	job.Signal(syscall.SIGINT)
	return "all ranks are told to end, as by Ctrl-C", nil
}
