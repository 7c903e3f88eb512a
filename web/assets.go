package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"
)

// types of the files of the page. The types that a host knows may be others.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// assets serves the files of the page. They hold nothing of a job, so they need no token. A browser asks each time whether
// its copy is the right one: another version of serry may serve at the same address.
func assets(files fs.FS) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("file")
		body, err := fs.ReadFile(files, name)
		kind := types[path.Ext(name)]
		if err != nil || kind == "" {
			refuse(w, http.StatusNotFound, "there is no "+r.URL.Path+" here", "")
			return
		}
		digest := sha256.Sum256(body)
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", `"`+hex.EncodeToString(digest[:8])+`"`)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
	})
}
