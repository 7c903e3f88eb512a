package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/member"
	"github.com/serry-dev/serry/topo"
)

// openHistory opens a journal, wherever it lies, without disturbing servers that write to it.
func (s *storeSettings) openHistory(ctx context.Context, name string) (*store.History, error) {
	cfg := etcd.Config{Prefix: s.prefix}
	if endpoints, shared := strings.CutPrefix(name, etcdPrefix); shared {
		ctx, cancel := context.WithTimeoutCause(ctx, defaultTimeout, fmt.Errorf("no answer within %v", defaultTimeout))
		defer cancel()
		if err := s.reach(&cfg, strings.Split(endpoints, ",")); err != nil {
			return nil, err
		}
		return etcd.Read(ctx, cfg)
	}
	if member.IsFolder(name) {
		ctx, cancel := context.WithTimeoutCause(ctx, folderPatience, fmt.Errorf("not ready within %v", folderPatience))
		defer cancel()
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
		return member.ReadFolder(ctx, name, cfg)
	}
	return store.Read(name)
}

// folderPatience is how long the folder of a member may take to be copied and opened.
const folderPatience = 5 * time.Minute

// restoreTo makes a reign go on with the history that --restore names, if it does.
func (s *storeSettings) restoreTo(ctx context.Context, reign store.Reign, log *slog.Logger) error {
	if s.restore == "" {
		return nil
	}
	h, err := s.openHistory(ctx, s.restore)
	if err != nil {
		return err
	}
	defer h.Close()
	return s.importFrom(ctx, reign, h, log)
}

func (s *storeSettings) importFrom(ctx context.Context, reign store.Reign, h *store.History, log *slog.Logger) error {
	done, err := server.Import(ctx, reign, h, topo.Republished)
	if err != nil {
		return s.refused(err)
	}
	if done {
		log.Info("history restored", "from", s.restore)
	} else {
		log.Info("history was restored before", "from", s.restore)
	}
	return nil
}

// refused says what to do about a store with another history.
func (s *storeSettings) refused(err error) error {
	err = fmt.Errorf("--restore %s: %w", s.restore, err)
	if errors.Is(err, server.ErrHistory) {
		return hinted{err, "to go on with what the store has, start without --restore; to restore, start with an empty folder, or another --store-prefix"}
	}
	return err
}

// restorePatience is how long a server tries to lead at a time, before it looks whether another has
// restored the history.
const restorePatience = 3 * time.Second

// restoreShared makes a store of several servers go on with the history that --restore names. All of them
// are started with it, because one without could be the first to lead, and would begin a new history.
// The first one that leads restores it; the others find that done.
func (s *storeSettings) restoreShared(ctx context.Context, st store.Store, who store.Candidate, log *slog.Logger,
	read func(context.Context) (*store.History, error)) error {
	if s.restore == "" {
		return nil
	}
	h, err := s.openHistory(ctx, s.restore)
	if err != nil {
		return err
	}
	defer h.Close()
	for {
		if done, err := restored(ctx, h, read); err != nil {
			return s.refused(err)
		} else if done {
			log.Info("history was restored before", "from", s.restore)
			return nil
		}
		trying, cancel := context.WithTimeoutCause(ctx, restorePatience, errOtherLeads)
		reign, err := st.Campaign(trying, who)
		cancel()
		switch {
		case errors.Is(err, errOtherLeads):
			continue
		case err != nil:
			return err
		}
		return errors.Join(s.importFrom(ctx, reign, h, log), reign.Resign(ctx))
	}
}

var errOtherLeads = errors.New("another server leads")

// restored says whether the journal that read opens goes on with h.
func restored(ctx context.Context, h *store.History, read func(context.Context) (*store.History, error)) (bool, error) {
	present, err := read(ctx)
	if err != nil {
		return false, err
	}
	defer present.Close()
	return server.Imported(ctx, present, h, topo.Republished)
}
