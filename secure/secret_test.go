package secure_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/secure"
)

func ExampleDraw() {
	path := filepath.Join(os.TempDir(), "my-job.secret")
	defer os.Remove(path)
	drawn := secure.Draw()
	if err := secure.Write(path, drawn); err != nil {
		fmt.Println(err)
	}
	read, err := secure.Read(path)
	fmt.Println(bytes.Equal(read, drawn), read, err)
	// Output: true secret <nil>
}

func TestSecretNeverPrints(t *testing.T) {
	clause.Cite(t, "CL-TRN-30")
	s := secure.Secret("0123456789abcdef0123456789abcdef")
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("opened", "key", s, "options", struct{ Secret secure.Secret }{s})
	asJSON, err := json.Marshal(struct{ Secret secure.Secret }{s})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		logged.String(), string(asJSON), fmt.Sprint(s), fmt.Sprintf("%s %q %x %X %v %+v %#v %d", s, s, s, s, s, s, s, s),
		fmt.Sprintf("%+v %#v", struct{ S secure.Secret }{s}, &struct{ S secure.Secret }{s}),
	} {
		if strings.Contains(text, "0123") || strings.Contains(text, "3031") || strings.Contains(text, "48 49") || !strings.Contains(text, "secret") {
			t.Errorf("printed as %q; want only the word secret", text)
		}
	}
}

func TestWriteSecret(t *testing.T) {
	clause.Cite(t, "CL-TRN-30")
	path := filepath.Join(t.TempDir(), "s")
	drawn := secure.Draw()
	if err := secure.Write(path, drawn); err != nil {
		t.Fatalf("Write() = %v; want a file", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file has %v, %v; want mode 0600", info.Mode(), err)
	}
	if got, err := secure.Read(path); err != nil || !bytes.Equal(got, drawn) {
		t.Errorf("Read() = %v; want what was written", err)
	}
	if err := secure.Write(path, secure.Draw()); !errors.Is(err, fs.ErrExist) || !errors.Is(err, secure.ErrSecret) {
		t.Errorf("Write() over a file = %v; want that it exists", err)
	}
	if err := secure.Write(filepath.Join(t.TempDir(), "short"), drawn[:31]); !errors.Is(err, secure.ErrSecret) {
		t.Errorf("Write() of 31 bytes = %v; want an error", err)
	}
	if bytes.Equal(drawn, secure.Draw()) {
		t.Error("Draw() twice is the same secret")
	}
}

// A file that is no secret, or that others can get at, is refused by its name.
func TestReadRefuses(t *testing.T) {
	clause.Cite(t, "CL-TRN-30")
	good := strings.Repeat("x", 32)
	for _, c := range []struct {
		name, want string
		make       func(path string) error
	}{
		{"not there", "no such file", func(string) error { return nil }},
		{"empty", "have 0", text("", 0o600)},
		{"too short", "want 32 to 4096 bytes, have 31", text(good[1:], 0o600)},
		{"too long", "want 32 to 4096 bytes, have more", text(strings.Repeat("x", 1<<20), 0o600)},
		{"readable by all", "chmod 600 ", text(good, 0o644)},
		{"readable by a group", "mode 0640", text(good, 0o640)},
		{"writable by others", "mode 0602", text(good, 0o602)},
		{"a folder", "want a plain file", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"a pipe without a writer", "want a plain file", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		{"a device without end", "want a plain file", func(path string) error { return os.Symlink("/dev/zero", path) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			t.Setenv(secure.EnvSecretFile, path)
			s, err := secure.FromEnv()
			if s != nil || !errors.Is(err, secure.ErrSecret) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("FromEnv() = %v, %v; want an error that names %s and has %q", s, err, path, c.want)
			}
		})
	}
	t.Run("another user's", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can give a file to another user")
		}
		path := filepath.Join(t.TempDir(), "s")
		if err := errors.Join(text(good, 0o600)(path), os.Chown(path, 12345, 12345)); err != nil {
			t.Skip(err)
		}
		if _, err := secure.Read(path); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "belongs to user 12345") {
			t.Errorf("Read() = %v; want that it belongs to user 12345", err)
		}
	})
	t.Run("no variable", func(t *testing.T) {
		t.Setenv(secure.EnvSecretFile, "")
		if s, err := secure.FromEnv(); s != nil || err != nil {
			t.Errorf("FromEnv() = %v, %v; want neither", s, err)
		}
	})
}

// text makes a file with a text and a mode.
func text(content string, mode fs.FileMode) func(path string) error {
	return func(path string) error {
		return errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chmod(path, mode))
	}
}
