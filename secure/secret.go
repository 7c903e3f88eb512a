// Package secure has the job secret: random bytes that make the processes of a job one trust domain.
// Whoever has them may be a task of the job, and no other process may.
//
// A [Secret] is drawn by [Draw], written by [Write] to a file that only its owner can read, and read
// by [Read] or [FromEnv], which refuse a file that others can read. It never prints: in texts, logs and
// JSON it is the word "secret".
package secure

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
)

// EnvSecretFile names the variable that tells a task where the secret of its job is. serry run sets it;
// without serry run it is a file that the user names.
const EnvSecretFile = "SERRY_JOB_SECRET_FILE"

// How many bytes a secret may have. All bytes of a file count, a newline at its end too.
const (
	MinBytes = 32
	MaxBytes = 4 << 10
)

// ErrSecret is wrapped by every error about a secret.
var ErrSecret = errors.New("job secret")

// A Secret is the secret of a job. Its bytes are the key of the handshakes of links (CL-TRN-30).
type Secret []byte

// Draw makes a new secret.
func Draw() Secret {
	s := make(Secret, MinBytes)
	rand.Read(s) // never fails
	return s
}

// Check says what is wrong with a secret, if anything.
func (s Secret) Check() error {
	if len(s) < MinBytes || len(s) > MaxBytes {
		return fmt.Errorf("%w: want %d to %d bytes, have %d", ErrSecret, MinBytes, MaxBytes, len(s))
	}
	return nil
}

// Format writes the word "secret" for every verb of package fmt, so that no text of an error or a log
// can hold the bytes.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "secret") }

// LogValue is the word "secret".
func (Secret) LogValue() slog.Value { return slog.StringValue("secret") }

// MarshalText gives JSON the word "secret".
func (Secret) MarshalText() ([]byte, error) { return []byte("secret"), nil }

// Write creates a file with the secret that only this user can read. It refuses a path where there is
// anything, so that no file or link of another user is written to.
func Write(path string, s Secret) error {
	if err := s.Check(); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSecret, err)
	}
	_, err = f.Write(s)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
		return fmt.Errorf("%w: %w", ErrSecret, err)
	}
	return nil
}

// FromEnv reads the secret from the file that [EnvSecretFile] names; where the variable is not set there
// is none, and both results are nil.
func FromEnv() (Secret, error) {
	path := os.Getenv(EnvSecretFile)
	if path == "" {
		return nil, nil
	}
	return Read(path)
}

// Read reads a secret from a file. The file must be a plain one of this user or of root that no other
// user can read or change; the error says how to mend one that is not.
func Read(path string) (Secret, error) {
	// A pipe without a writer must not hold up the open.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	defer f.Close()
	if err := checkFile(f); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSecret, path, err)
	}
	s, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	if len(s) < MinBytes || len(s) > MaxBytes {
		return nil, fmt.Errorf("%w: %s: want %d to %d bytes, have %s", ErrSecret, path, MinBytes, MaxBytes, count(len(s)))
	}
	return s, nil
}

// checkFile looks at the file that was opened, not at its name, which may be another file by now.
func checkFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return fmt.Errorf("want a plain file, have %v", mode.Type())
	case mode.Perm()&0o077 != 0:
		return fmt.Errorf("other users can get at it (mode %04o); to mend that: chmod 600 %s", mode.Perm(), f.Name())
	case ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%w: it belongs to user %d", fs.ErrPermission, stat.Uid)
	}
	return nil
}

// count is how many bytes a file has, of which at most MaxBytes+1 were read.
func count(n int) string {
	if n > MaxBytes {
		return "more"
	}
	return fmt.Sprint(n)
}
