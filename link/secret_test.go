package link_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/secure"
)

// Without a secret in its options a process takes that of the file which its launcher names. A file that
// others can read is refused, and so is a process that was named another file.
func TestSecretOfTheEnvironment(t *testing.T) {
	clause.Cite(t, "CL-TRN-30")
	w := &world{job: newJob(), t: t}
	name := func(s secure.Secret, mode os.FileMode) {
		path := filepath.Join(t.TempDir(), "secret")
		if err := errors.Join(os.WriteFile(path, s, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		t.Setenv(secure.EnvSecretFile, path)
	}
	name(secret, 0o600)
	a := w.join(life(0, 10), onLoopback)
	b := w.join(life(1, 11), onLoopback)
	if _, err := a.Link(t.Context(), b.Life()); err != nil {
		t.Errorf("Link() with the same secret = %v; want a link", err)
	}
	name(secure.Draw(), 0o600)
	c := w.join(life(2, 12), onLoopback)
	_, err := c.Link(t.Context(), a.Life())
	if refused, ok := errors.AsType[*link.RefusedError](err); !ok || refused.Code != link.WrongSecret {
		t.Errorf("Link() with another secret = %v; want it refused for its secret", err)
	}
	name(secret, 0o644)
	if n, err := w.open(life(3, 13), onLoopback); !errors.Is(err, secure.ErrSecret) {
		if err == nil {
			n.Close(context.Background())
		}
		t.Errorf("Open() with a file that others can read = %v; want %v", err, secure.ErrSecret)
	}
}

func onLoopback(o *link.Options) { o.Listen = []string{"127.0.0.1"} }
