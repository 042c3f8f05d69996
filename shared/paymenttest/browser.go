package paymenttest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// FromPage returns an error if a web page could have sent a request to a server of this machine. Browsers
// add the header Origin or Sec-Fetch-Site (https://www.w3.org/TR/fetch-metadata), or the request names a
// host other than 127.0.0.1, localhost and hosts: the name of a page that resolves to 127.0.0.1 since the
// page was loaded (DNS rebinding).
func FromPage(r *http.Request, hosts ...string) error {
	for _, name := range []string{"Origin", "Sec-Fetch-Site"} {
		if _, ok := r.Header[name]; ok {
			return fmt.Errorf("a browser sent it: it has the header %s", name)
		}
	}
	host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
	if !slices.Contains(append(hosts, "127.0.0.1", "localhost"), host) {
		return fmt.Errorf("this server is not %s", r.Host)
	}
	return nil
}

// notForPages answers 403 to requests that a web page could have sent.
func notForPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := FromPage(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
