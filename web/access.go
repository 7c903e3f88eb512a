package web

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// NewToken draws a token.
func NewToken() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // it does not fail, or ends the process
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// access checks whether a request may see the page (D-WEB-15, 16). Its fields do not change.
//
// A browser trades the token for a cookie once, so that the token is in no address, no history and no cookie. The value of the
// cookie is drawn from the token: no list of sessions is kept, and a server that is started again with the same token knows its
// viewers. Browsers send a cookie to every port of a host, so its name is drawn from the token, too: pages of several jobs on one host do
// not take each other's cookies away.
type access struct {
	token   [sha256.Size]byte // digests are compared, so that the time does not tell the length
	session [sha256.Size]byte
	cookie  http.Cookie
	hosts   []string
	writer  *access // for the token for changes, or nil: the page changes nothing
}

func newAccess(token string, hosts []string) access {
	session := hex.EncodeToString(derive(token, "session"))
	a := access{
		token: sha256.Sum256([]byte(token)), session: sha256.Sum256([]byte(session)),
		cookie: http.Cookie{Name: "serry-" + hex.EncodeToString(derive(token, "name")[:4]), Value: session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode},
	}
	for _, host := range hosts {
		a.hosts = append(a.hosts, bareHost(host))
	}
	return a
}

// derive draws a value from a token, which does not tell the token.
func derive(token, what string) []byte {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("serry page " + what))
	return mac.Sum(nil)
}

// policy lets a page load its own files and nothing else, and no other page show it.
const policy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; form-action 'self'; base-uri 'none'"

// admit refuses requests that a browser was led to by another site, and sets the headers of every answer.
func (a *access) admit(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if !a.knows(r) {
		refuse(w, http.StatusForbidden, "this page is not known as "+bareHost(r.Host), "reach it by the address that serry has printed, or give --web-host")
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && foreign(r) {
		refuse(w, http.StatusForbidden, "the request comes from another site", "")
		return false
	}
	return true
}

// knows says whether the name by which a browser reached the server is one of its own. A name that another site has made to
// point here is none: to the browser the page would belong to that site (DNS rebinding).
func (a *access) knows(r *http.Request) bool {
	host := bareHost(r.Host)
	if host == "localhost" || slices.Contains(a.hosts, host) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if ip.Unmap().IsLoopback() {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && ip.Unmap() == local.AddrPort().Addr().Unmap()
}

// bareHost is a host without port, brackets and case.
func bareHost(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}

// foreign says whether a page of another site sends the request. A program that is no browser says nothing about that.
func foreign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host)
}

// permits says whether a request may see the page. It needs one of the two tokens, or the cookie for one of them.
func (a *access) permits(r *http.Request) bool {
	return a.holds(r) || a.writer != nil && a.writer.holds(r)
}

// orders says whether a request may ask the ranks for something (readStacks): it shows one of the two tokens itself. A cookie is not enough. A
// browser sends it to every port of this host, so a program of another user can read it there and send it here.
func (a *access) orders(r *http.Request) bool { return a.shows(r) || a.writes(r) }

// writes says whether a request may change the job: it shows the token for that itself.
func (a *access) writes(r *http.Request) bool { return a.writer != nil && a.writer.shows(r) }

// of is the access that a token gives, or nil.
func (a *access) of(token string) *access {
	switch {
	case same(a.token, token):
		return a
	case a.writer != nil && same(a.writer.token, token):
		return a.writer
	}
	return nil
}

// holds says whether a request shows the token, or the cookie that it was traded for.
func (a *access) holds(r *http.Request) bool {
	if a.shows(r) {
		return true
	}
	c, err := r.Cookie(a.cookie.Name)
	return err == nil && same(a.session, c.Value)
}

// shows says whether a request has the token in a header. A page of another site cannot set that header: a browser would first ask this
// server whether it may, and is refused.
func (a *access) shows(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && same(a.token, token)
}

// same compares in a time that does not depend on either.
func same(want [sha256.Size]byte, given string) bool {
	digest := sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(want[:], digest[:]) == 1
}

const orderHint = "open the address that serry has printed, in this tab, or send its token as Authorization: Bearer TOKEN"

const tokenHint = "open the address that serry has printed, whose end is the token, or send it as Authorization: Bearer TOKEN"

// ask serves requests that carry the token, and refuses all others.
func (a *access) ask(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.permits(r) {
			serve(w, r)
			return
		}
		if r.URL.Path == "/plain" {
			writePlainForm(w, "")
			return
		}
		refuse(w, http.StatusUnauthorized, "no token, or a wrong one", tokenHint)
	})
}

// session trades a token for a cookie.
func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	var given struct {
		Token string `json:"token"`
	}
	if r.Header.Get("Content-Type") != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "the body is not application/json", "")
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&given); err != nil {
		refuse(w, http.StatusBadRequest, "the body is no object with a token", "")
		return
	}
	granted := s.access.of(given.Token)
	if granted == nil {
		refuse(w, http.StatusUnauthorized, "a wrong token", tokenHint)
		return
	}
	granted.give(w, r)
	w.WriteHeader(http.StatusNoContent)
}

// plainSession is session for the form of the page without JavaScript.
func (s *Server) plainSession(w http.ResponseWriter, r *http.Request) {
	granted := s.access.of(strings.TrimSpace(r.PostFormValue("token")))
	if granted == nil {
		writePlainForm(w, "That is not the token.")
		return
	}
	granted.give(w, r)
	w.Header().Set("Location", "plain")
	w.WriteHeader(http.StatusSeeOther)
}

// give sets the cookie. Under TLS it goes over nothing else.
func (a *access) give(w http.ResponseWriter, r *http.Request) {
	c := a.cookie
	c.Secure = r.TLS != nil
	http.SetCookie(w, &c)
}

// refuse says why a request is not answered, and what to do.
func refuse(w http.ResponseWriter, code int, text, hint string) {
	document := struct {
		Error string `json:"error"`
		Hint  string `json:"hint,omitempty"`
	}{text, hint}
	writeJSON(w, code, document)
}
