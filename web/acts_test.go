package web

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
)

// post asks for a change with the token for that.
func post(s http.Handler, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+testWriteToken)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(actHeader, "yes")
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// Changes need the right token, header and type, and all viewers are told of them.
func TestActs(t *testing.T) {
	lab.Clause(t, "D-WEB-14", "D-WEB-16", "TD-WEB-6")
	job := newFakeJob()
	withPanels(t, stalled(), job, nil, job, func(t *testing.T, s *Server) {
		with := func(name, value string) func(*http.Request) {
			return func(r *http.Request) { r.Header.Set(name, value) }
		}
		for name, c := range map[string]struct {
			code int
			w    *httptest.ResponseRecorder
		}{
			"no token":           {401, post(s, "/api/v1/acts/put", `{"key":"a","value":"2"}`, with("Authorization", ""))},
			"a viewer's token":   {403, post(s, "/api/v1/acts/put", `{"key":"a","value":"2"}`, with("Authorization", "Bearer "+testToken))},
			"foreign origin":     {403, post(s, "/api/v1/acts/put", `{"key":"a","value":"2"}`, with("Origin", "http://evil.example.org"))},
			"foreign site":       {403, post(s, "/api/v1/acts/put", `{"key":"a","value":"2"}`, with("Sec-Fetch-Site", "cross-site"))},
			"foreign host":       {403, post(s, "/api/v1/acts/put", `{"key":"a","value":"2"}`, func(r *http.Request) { r.Host = "evil.example.org" })},
			"no header":          {415, post(s, "/api/v1/acts/put", `{"key":"a","value":"2"}`, with(actHeader, ""))},
			"a form":             {415, post(s, "/api/v1/acts/put", `{"key":"a","value":"2"}`, with("Content-Type", "text/plain"))},
			"by GET":             {404, post(s, "/api/v1/acts/put", ``, func(r *http.Request) { r.Method = "GET" })},
			"not offered":        {404, post(s, "/api/v1/acts/stop", `{}`)},
			"unknown":            {404, post(s, "/api/v1/acts/rm-rf", `{}`)},
			"no key":             {400, post(s, "/api/v1/acts/put", `{"value":"2"}`)},
			"an empty key":       {400, post(s, "/api/v1/acts/delete", `{"key":""}`)},
			"too much":           {400, post(s, "/api/v1/acts/delete", `{"key":"a","value":"b"}`)},
			"unknown field":      {400, post(s, "/api/v1/acts/delete", `{"key":"a","all":true}`)},
			"no object":          {400, post(s, "/api/v1/acts/delete", `[]`)},
			"no rank":            {404, post(s, "/api/v1/acts/kill", `{"rank":"9"}`)},
			"a query":            {400, post(s, "/api/v1/acts/delete?x=1", `{"key":"a"}`)},
			"more than there is": {400, post(s, "/api/v1/acts/put", `{"key":"a","value":"`+strings.Repeat("x", actBytes)+`"}`)},
		} {
			if c.w.Code != c.code {
				t.Errorf("%s = %d %s; want %d", name, c.w.Code, c.w.Body, c.code)
			}
		}
		if len(job.mu.acts) != 0 {
			t.Fatalf("changed %+v; want nothing", job.mu.acts)
		}
		for _, c := range []struct{ path, body string }{
			{"put", `{"key":"a","value":""}`}, {"delete", `{"key":"` + strings.Repeat("k", 100) + `"}`}, {"kill", `{"rank":"3"}`},
		} {
			if w := post(s, "/api/v1/acts/"+c.path, c.body); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "so be it") {
				t.Errorf("POST %s = %d %s; want it done", c.path, w.Code, w.Body)
			}
		}
		want := []Act{{Name: ActPut, Key: "a"}, {Name: ActDelete, Key: strings.Repeat("k", 100)}, {Name: ActKill, Task: serry.TaskID{Job: "worker", Index: 3}}}
		if !slices.Equal(job.mu.acts, want) {
			t.Errorf("changed %+v; want %+v", job.mu.acts, want)
		}
		job.mu.refuses = errors.New("the attempt is ending")
		if w := post(s, "/api/v1/acts/kill", `{"rank":"worker/3"}`); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "the attempt is ending") {
			t.Errorf("an act that is refused = %d %s; want 409 and why", w.Code, w.Body)
		}
		events := decode[struct{ Events []happening }](t, get(s, "/api/v1/events?kind=job&limit=4")).Events
		if len(events) != 4 || !events[0].Bad || events[0].Task != "worker/3" || events[1].Text != "kill rank 3, from the page, by 192.0.2.1: so be it" || !strings.Contains(events[3].Text, `put key "a"`) {
			t.Errorf("events %+v; want all four changes, the newest first", events)
		}
		acts := func(token string) []string {
			return decode[struct{ Acts []string }](t, get(s, "/api/v1/rights", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })).Acts
		}
		if got := acts(testToken); len(got) != 0 {
			t.Errorf("a viewer may %q; want nothing", got)
		}
		if got := acts(testWriteToken); !slices.Equal(got, job.Names()) {
			t.Errorf("a person with the token may %q; want %q", got, job.Names())
		}
	})
}

// Without --web-write there are no changes, whatever a request shows.
func TestNoActs(t *testing.T) {
	lab.Clause(t, "D-WEB-14", "TD-WEB-6")
	job := newFakeJob()
	withPanels(t, stalled(), job, nil, nil, func(t *testing.T, s *Server) {
		for _, token := range []string{testToken, testWriteToken} {
			w := post(s, "/api/v1/acts/put", `{"key":"a","value":"2"}`, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
			if w.Code != http.StatusNotFound {
				t.Errorf("POST /acts/put = %d; want 404", w.Code)
			}
		}
		if w := get(s, "/api/v1/job", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+testWriteToken) }); w.Code != http.StatusUnauthorized {
			t.Errorf("GET /job with a token that is none = %d; want 401", w.Code)
		}
	})
	for name, token := range map[string]string{"none": "", "short": "short", "that of viewers": testToken} {
		if _, err := New(Config{Source: stalled(), Token: testToken, WriteToken: token, Panels: Panels{Acts: job}}); err == nil {
			t.Errorf("New() with a token for changes that is %s = nil; want an error", name)
		}
	}
}

// A browser sends a cookie to every port of a host, so a cookie alone changes nothing and reads no stacks, not even that for the token for changes.
func TestCookieChangesNothing(t *testing.T) {
	lab.Clause(t, "D-WEB-14", "D-WEB-15", "TD-WEB-6")
	job := newFakeJob()
	withPanels(t, stalled(), job, nil, job, func(t *testing.T, s *Server) {
		cookie := func(token string) *http.Cookie {
			w := trade(s, `{"token":"`+token+`"}`)
			if len(w.Result().Cookies()) != 1 {
				t.Fatalf("POST /session = %d; want a cookie", w.Code)
			}
			return w.Result().Cookies()[0]
		}
		viewer, writer := cookie(testToken), cookie(testWriteToken)
		if viewer.Name == writer.Name || viewer.Value == writer.Value {
			t.Errorf("both cookies are %s", viewer)
		}
		for name, c := range map[string]struct {
			cookie *http.Cookie
			token  string
			path   string
			code   int
			says   string
		}{
			"a viewer's cookie":                {viewer, "", "/api/v1/acts/kill", 403, "this token lets viewers look"},
			"the cookie for changes":           {writer, "", "/api/v1/acts/kill", 403, "a cookie alone changes nothing"},
			"the cookie for changes as token":  {writer, writer.Value, "/api/v1/acts/kill", 403, "a cookie alone changes nothing"},
			"it and a viewer's token":          {writer, testToken, "/api/v1/acts/kill", 403, "a cookie alone changes nothing"},
			"it and the token":                 {writer, testWriteToken, "/api/v1/acts/kill", 200, "so be it"},
			"a viewer's under its name":        {&http.Cookie{Name: writer.Name, Value: viewer.Value}, "", "/api/v1/acts/kill", 401, "no token"},
			"a viewer's cookie, for stacks":    {viewer, "", "/api/v1/stacks", 403, "a cookie alone reads no stacks"},
			"the other cookie, for stacks":     {writer, "", "/api/v1/stacks", 403, "a cookie alone reads no stacks"},
			"the token for changes and stacks": {writer, testWriteToken, "/api/v1/stacks", 200, "load"},
		} {
			w := post(s, c.path, `{"rank":"3"}`, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+c.token); r.AddCookie(c.cookie) })
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("POST %s with %s = %d %s; want %d and %q", c.path, name, w.Code, w.Body, c.code, c.says)
			}
		}
		if !slices.Equal(job.mu.acts, []Act{{Name: ActKill, Task: serry.TaskID{Job: "worker", Index: 3}}}) {
			t.Errorf("changed %+v; want rank 3 killed once", job.mu.acts)
		}
		rights := get(s, "/api/v1/rights", func(r *http.Request) { r.Header.Del("Authorization"); r.AddCookie(writer) })
		if got := decode[struct{ Acts []string }](t, rights).Acts; len(got) != 0 {
			t.Errorf("with the cookie for changes a page is offered %q; want nothing", got)
		}
	})
}

// Whatever a request for a change holds, what is read of it is an act that its name allows, or nothing.
func FuzzAct(f *testing.F) {
	for _, seed := range []string{`{"key":"a","value":"b"}`, `{"rank":"3"}`, `{}`, `{"key":null}`, `[1]`, `{"key":"a"}{}`, "{\"key\":\"\x00\"}"} {
		for _, name := range []string{ActPut, ActDelete, ActRestart, ActKill, ActStop, "other"} {
			f.Add(name, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		act, rank, err := readAct(name, body)
		if err != nil {
			return
		}
		if needsKey, needsRank := name == ActPut || name == ActDelete, name == ActRestart || name == ActKill; (act.Key != "") != needsKey || (rank != "") != needsRank || act.Value != "" && name != ActPut {
			t.Errorf("readAct(%q, %q) = %+v, %q", name, body, act, rank)
		}
	})
}

// However keys are called, a page of them has each once, and no more than was asked for.
func FuzzKeyRows(f *testing.F) {
	f.Add("a/b\na/c\nd", "a/", true)
	f.Add("//\n/\n", "/", true)
	f.Add("\x00\n\xff/\xff", "", false)
	f.Fuzz(func(t *testing.T, names, prefix string, tree bool) {
		job := newFakeJob()
		clear(job.mu.keys)
		for name := range strings.SplitSeq(names, "\n") {
			job.mu.keys[name] = "v"
		}
		all, err := job.Sizes(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var list KeyList
		rows, keys := rowsOf(all, prefix, tree, &list), 0
		for i, r := range rows {
			if keys++; r.dir {
				keys += r.keys - 1
			}
			if i > 0 && rows[i-1].Key >= r.Key || !strings.HasPrefix(r.Key, prefix) {
				t.Errorf("row %q after %q, below %q", r.Key, rows[max(0, i-1)].Key, prefix)
			}
		}
		if keys != list.Total || int64(keys) != list.Bytes {
			t.Errorf("rows have %d keys; want %d", keys, list.Total)
		}
	})
}
