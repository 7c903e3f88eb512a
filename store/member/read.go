package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/internal/zaplog"
)

// IsFolder says whether dir is the folder of a member.
func IsFolder(dir string) bool {
	_, err := os.Stat(datadir.ToBackendFileName(dir))
	return err == nil && wal.Exist(datadir.ToWALDir(dir))
}

// ReadFolder opens the journal in the folder of a member that does not run, without the other members:
// the way back when a majority of them is lost. It reads a copy, in a temporary folder that goes when the
// history is closed; the folder itself is left as it is. Of cfg the prefix and the log count.
//
// What the member holds is all that it has acknowledged to the others. An entry that it has and that no
// majority had may be among it: a batch whose Append did not return, which may be there or not. An entry
// that it does not have, because the others had not sent it yet, is lost with them.
func ReadFolder(ctx context.Context, dir string, cfg etcd.Config) (*store.History, error) {
	copied, err := os.MkdirTemp("", "serry-")
	if err != nil {
		return nil, err
	}
	h, err := readCopy(ctx, dir, copied, cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("member in %s: %w", dir, err), os.RemoveAll(copied))
	}
	return h, nil
}

func readCopy(ctx context.Context, dir, copied string, cfg etcd.Config) (*store.History, error) {
	if err := copyMember(ctx, dir, copied); err != nil {
		return nil, err
	}
	if err := commitAll(datadir.ToWALDir(copied)); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrDamaged, err)
	}
	if err := store.CheckPages(datadir.ToBackendFileName(copied)); err != nil { // which would end the process
		return nil, err
	}
	e, err := startAlone(ctx, copied, cfg)
	if err != nil {
		return nil, err
	}
	a := alone{etcd: e, dir: copied}
	cfg.Endpoints, cfg.TLS, cfg.Client = nil, nil, v3client.New(e.Server)
	h, err := etcd.Read(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.history = h
	return &store.History{Journal: h.Journal, Closer: a}, nil
}

// An alone is a member that runs by itself on a copy.
type alone struct {
	etcd    *embed.Etcd
	dir     string
	history io.Closer // or nil
}

// Close stops the member and removes the copy.
func (a alone) Close() error {
	var err error
	if a.history != nil {
		err = a.history.Close()
	}
	a.etcd.Close()
	return errors.Join(err, os.RemoveAll(a.dir))
}

// copyMember copies what a member has written, while none runs.
func copyMember(ctx context.Context, from, to string) error {
	db, err := os.Open(datadir.ToBackendFileName(from))
	if err != nil {
		return err
	}
	defer db.Close()
	switch err := unix.Flock(int(db.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%w by a server; end it first, or read from it while a majority runs: etcd:unix:%s", store.ErrInUse, filepath.Join(from, clientSocket))
	case err != nil:
		return err
	}
	return filepath.WalkDir(datadir.ToMemberDir(from), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case d.Type().IsRegular():
			return copyFile(name, filepath.Join(to, rel))
		}
		return nil
	})
}

// copyBytes is how much is copied at a time.
const copyBytes = 1 << 20

// copyFile copies a file, but not the room at its end that etcd has made for later.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	size, err := copySparse(out, in)
	return errors.Join(err, out.Truncate(size), out.Close())
}

// copySparse copies all but zeros, which a file has where nothing was written.
func copySparse(out io.WriterAt, in io.Reader) (size int64, err error) {
	b, zeros := make([]byte, copyBytes), make([]byte, copyBytes)
	for {
		n, err := io.ReadFull(in, b)
		if n > 0 && !bytes.Equal(b[:n], zeros[:n]) {
			if _, err := out.WriteAt(b[:n], size); err != nil {
				return size, err
			}
		}
		size += int64(n)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return size, nil
		case err != nil:
			return size, err
		}
	}
}

// commitAll makes a log say that all its entries are committed. A member learns of that only with the
// next message of its leader, and a lost leader may have acknowledged the last entries before it sent
// one. A new cluster of this member alone would drop them.
func commitAll(dir string) error {
	lg := zap.NewNop()
	snapshots, err := wal.ValidSnapshotEntries(lg, dir)
	if err != nil {
		return err
	}
	if len(snapshots) == 0 {
		return errors.New("no state in the log")
	}
	newest := snapshots[len(snapshots)-1]
	for repaired := false; ; repaired = true {
		w, err := wal.Open(lg, dir, newest)
		if err != nil {
			return err
		}
		_, state, entries, err := w.ReadAll()
		if errors.Is(err, io.ErrUnexpectedEOF) && !repaired { // the last write was torn, and never acknowledged
			w.Close()
			if !wal.Repair(lg, dir) {
				return err
			}
			continue
		}
		if err == nil && len(entries) > 0 {
			state.Commit = new(entries[len(entries)-1].GetIndex())
			err = w.Save(state, nil)
		}
		return errors.Join(err, w.Close())
	}
}

// startAlone starts a member whose cluster is itself alone, and which serves no other process.
func startAlone(ctx context.Context, dir string, cfg etcd.Config) (*embed.Etcd, error) {
	ec := embed.NewConfig()
	ec.Name, ec.Dir, ec.ForceNewCluster = "replay", dir, true
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zaplog.New(fatalOnly(cfg.Log), "etcd"))
	ec.TickMs, ec.ElectionMs = heartbeatMillis, electionMillis
	ec.QuotaBackendBytes = readQuota
	socket := func(name string) []url.URL { return []url.URL{{Scheme: "unix", Path: filepath.Join(dir, name)}} }
	ec.ListenPeerUrls, ec.ListenClientUrls, ec.ListenClientHttpUrls = socket("peer.sock"), socket(clientSocket), socket(httpSocket)
	ec.AdvertisePeerUrls, ec.AdvertiseClientUrls = ec.ListenPeerUrls, ec.ListenClientUrls
	ec.InitialCluster = ec.Name + "=" + ec.AdvertisePeerUrls[0].String()
	e, err := embed.StartEtcd(ec)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err = <-e.Err():
	case <-e.Server.StopNotify():
		err = errors.New("stopped while starting")
	case <-ctx.Done():
		e.Server.Stop()
		err = context.Cause(ctx)
	}
	e.Close()
	return nil, err
}

// fatalOnly is a log that keeps only what ends the process: etcd ends it where it cannot read its files.
// What else etcd would tell is about members that are lost, and about its own end.
func fatalOnly(log *slog.Logger) *slog.Logger {
	if log == nil {
		return nil
	}
	return slog.New(fatalHandler{log.Handler()})
}

type fatalHandler struct{ slog.Handler }

func (h fatalHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= zaplog.LevelFatal }

func (h fatalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return fatalHandler{h.Handler.WithAttrs(attrs)}
}

// readQuota is the most that etcd takes: a member that is full can be read as well.
const readQuota = 8 << 30
