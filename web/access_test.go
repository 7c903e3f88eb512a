package web

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// Without the token there is nothing to see but the files of the page, which hold nothing.
func TestToken(t *testing.T) {
	lab.Clause(t, "D-WEB-15", "TD-WEB-6")
	in(t, stalled(), func(t *testing.T, s *Server) {
		for _, path := range []string{"/api/v1/job", "/api/v1/grid", "/api/v1/ranks", "/api/v1/ranks/3", "/api/v1/waits", "/api/v1/events", "/api/v1/why", "/api/v1/stacks", "/api/v1/stream", "/", "/plain"} {
			for name, change := range map[string]func(*http.Request){
				"none":  func(r *http.Request) { r.Header.Del("Authorization") },
				"wrong": func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+testToken+"x") },
				"empty": func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") },
				"as cookie": func(r *http.Request) {
					r.Header.Del("Authorization")
					r.AddCookie(&http.Cookie{Name: s.access.cookie.Name, Value: testToken})
				},
			} {
				if w := get(s, path, change); w.Code != http.StatusUnauthorized || strings.Contains(w.Body.String(), "save-100") {
					t.Errorf("GET %s, token %s = %d %s; want 401", path, name, w.Code, w.Body)
				}
			}
		}
		for _, path := range []string{"/healthz", "/style.css", "/main.js"} {
			if w := get(s, path, func(r *http.Request) { r.Header.Del("Authorization") }); w.Code != http.StatusOK {
				t.Errorf("GET %s without a token = %d; want 200", path, w.Code)
			}
		}
	})
	if _, err := New(Config{Source: stalled(), Token: "short"}); err == nil {
		t.Error("New() takes a token of 5 characters; want an error")
	}
	if a, b := NewToken(), NewToken(); a == b || len(a) < MinToken || url.QueryEscape(a) != a {
		t.Errorf("NewToken() = %q and %q; want two, long enough, for an address", a, b)
	}
}

// trade sends the token for a cookie.
func trade(s http.Handler, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "http://localhost/api/v1/session", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// A browser trades the token for a cookie that is not the token, and that no script and no other site can use.
func TestSession(t *testing.T) {
	lab.Clause(t, "D-WEB-15", "D-WEB-16")
	in(t, stalled(), func(t *testing.T, s *Server) {
		w := trade(s, `{"token":"`+testToken+`"}`)
		cookies := w.Result().Cookies()
		if w.Code != http.StatusNoContent || len(cookies) != 1 {
			t.Fatalf("POST /session = %d, %d cookies; want 204 and one", w.Code, len(cookies))
		}
		c := cookies[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || strings.Contains(c.Value, testToken) || c.Path != "/" {
			t.Errorf("cookie %v; want HttpOnly, SameSite=Strict, and not the token", c)
		}
		with := func(r *http.Request) { r.Header.Del("Authorization"); r.AddCookie(c) }
		if w := get(s, "/api/v1/job", with); w.Code != http.StatusOK {
			t.Errorf("GET /job with the cookie = %d; want 200", w.Code)
		}
		if other := newAccess(testToken+"2", nil); other.cookie.Name == c.Name {
			t.Errorf("two tokens have the cookie %s; want one each: browsers do not tell ports apart", c.Name)
		}
		for name, w := range map[string]*httptest.ResponseRecorder{
			"wrong token":    trade(s, `{"token":"x"}`),
			"no object":      trade(s, `x`),
			"form":           trade(s, `{"token":"`+testToken+`"}`, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }),
			"foreign origin": trade(s, `{"token":"`+testToken+`"}`, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example.org") }),
			"null origin":    trade(s, `{"token":"`+testToken+`"}`, func(r *http.Request) { r.Header.Set("Origin", "null") }),
			"cross site":     trade(s, `{"token":"`+testToken+`"}`, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }),
			"huge":           trade(s, `{"token":"`+strings.Repeat("x", 1<<20)+`"}`),
		} {
			if w.Code < 400 || w.Result().Cookies() != nil && len(w.Result().Cookies()) > 0 {
				t.Errorf("POST /session, %s = %d; want it refused, without a cookie", name, w.Code)
			}
		}
		if w := trade(s, `{"token":"`+testToken+`"}`, func(r *http.Request) { r.Header.Set("Origin", "http://localhost") }); w.Code != http.StatusNoContent {
			t.Errorf("POST /session from the page itself = %d; want 204", w.Code)
		}
		r := httptest.NewRequest("POST", "http://localhost/plain", strings.NewReader(url.Values{"token": {testToken}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		form := httptest.NewRecorder()
		s.ServeHTTP(form, r)
		if form.Code != http.StatusSeeOther || len(form.Result().Cookies()) != 1 {
			t.Errorf("POST /plain = %d; want the cookie and the way to the page", form.Code)
		}
	})
}

// A site that makes its name point here does not get in: to a browser the page would be its own.
func TestHost(t *testing.T) {
	lab.Clause(t, "D-WEB-16", "TD-WEB-6")
	in(t, stalled(), func(t *testing.T, s *Server) {
		for host, want := range map[string]int{
			"localhost:8480":             200,
			"127.0.0.1":                  200,
			"127.8.8.8:1":                200,
			"[::1]:8480":                 200,
			"PAGE.example.org":           200,
			"page.example.org.:80":       200,
			"evil.example.org":           403,
			"localhost.evil.example.org": 403,
			"10.0.0.9":                   200, // the address of the connection, see below
			"10.0.0.8":                   403,
			"":                           403,
		} {
			w := get(s, "/api/v1/job", func(r *http.Request) {
				r.Host = host
				*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 80})))
			})
			if w.Code != want {
				t.Errorf("GET /job, Host %q = %d; want %d", host, w.Code, want)
			}
		}
	})
}

// Every answer tells browsers to run nothing but the files of the page.
func TestHeaders(t *testing.T) {
	lab.Clause(t, "D-WEB-16")
	in(t, stalled(), func(t *testing.T, s *Server) {
		for _, path := range []string{"/", "/main.js", "/plain", "/api/v1/job", "/api/v1/nothing", "/healthz"} {
			h := get(s, path).Header()
			csp := h.Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "script-src 'self'", "worker-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} {
				if !strings.Contains(csp, want) {
					t.Errorf("GET %s: policy %q; want %s", path, csp, want)
				}
			}
			if strings.Contains(csp, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("GET %s: headers %v; want nosniff, no-referrer and nothing unsafe", path, h)
			}
			if strings.HasPrefix(path, "/api") && h.Get("Cache-Control") != "no-store" {
				t.Errorf("GET %s: Cache-Control %q; want no-store", path, h.Get("Cache-Control"))
			}
		}
	})
}
