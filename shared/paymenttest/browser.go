package paymenttest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// FromPage returns an error if a web page of another origin sent a request, of any method
// ([http.CrossOriginProtection]), or if the request names a host other than 127.0.0.1, localhost and hosts: the
// name of a page that resolves to 127.0.0.1 since the page was loaded (DNS rebinding).
func FromPage(r *http.Request, hosts ...string) error {
	host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
	if !slices.Contains(append(hosts, "127.0.0.1", "localhost"), host) {
		return fmt.Errorf("this server is not %s", r.Host)
	}
	asPOST := r.WithContext(r.Context()) // the protection lets every GET pass
	asPOST.Method = http.MethodPost
	return http.NewCrossOriginProtection().Check(asPOST)
}

// NotForPages answers 403 to requests of [FromPage]. Other requests reach next.
func NotForPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := FromPage(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
