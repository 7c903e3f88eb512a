package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/serry-dev/serry/mesh/restore"
)

// A folder is where a saved step is: on the disk of one host, or in the store.
type folder string

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// write puts a file into the folder, whole or not at all.
func (f folder) write(name string, data []byte) error {
	path := filepath.Join(string(f), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", data, 0o666); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// read returns the bytes of a shard, if they are those that were saved.
func (f folder) read(s restore.StoredShard) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(string(f), s.File))
	if err == nil && digest(data) != s.Digest {
		err = fmt.Errorf("%s: not what was saved: %s, not %s", s.File, digest(data), s.Digest)
	}
	return data, err
}

// index writes what the folder holds.
func (f folder) index(x *restore.Inventory) error {
	text, err := x.Encode()
	if err != nil {
		return err
	}
	return f.write(restore.InventoryFile, text)
}

// readIndex reads what the folder holds; nil if it is not there, as on a new host.
func (f folder) readIndex() (*restore.Inventory, error) {
	name := filepath.Join(string(f), restore.InventoryFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return restore.ParseInventory(name, text)
}

// manifest writes what the devices were, and the same for Orbax.
func (f folder) manifest(m *restore.Manifest) error {
	text, err := m.Encode()
	if err != nil {
		return err
	}
	errs := []error{f.write(filepath.Join(restore.MetadataFolder, restore.ManifestFile), text)}
	for _, file := range m.Metadata().Files() {
		errs = append(errs, f.write(filepath.Join(restore.MetadataFolder, file.Name), file.Text))
	}
	return errors.Join(errs...)
}

func (f folder) readManifest() (*restore.Manifest, error) {
	name := filepath.Join(string(f), restore.MetadataFolder, restore.ManifestFile)
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return restore.ParseManifest(name, text)
}
