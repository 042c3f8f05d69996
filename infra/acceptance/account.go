package acceptance

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/local"
	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/token"
)

// These rows need an account.

// tokenCheck calls the protected API for 15 minutes, with tokens that live 4 minutes and
// are renewed by the schedule alone.
func (d *deployed) tokenCheck() check {
	const duration, life = 15 * time.Minute, 4 * time.Minute
	return check{
		what:     "calls of the protected API for 15 minutes, with tokens that live 4 minutes",
		expected: "0 calls fail", needs: []local.Need{Long},
		do: func(ctx context.Context) (actual string, right bool, err error) {
			if err := d.service.SetTokenLifetime(ctx, life); err != nil {
				return "", false, err
			}
			defer func() {
				err = errors.Join(err,
					d.service.SetTokenLifetime(context.WithoutCancel(ctx), paymenttest.DefaultTokenLifetime))
			}()
			reader := token.NewReader(secretsmanager.NewFromConfig(d.AWS), d.TokenSecret, token.ReaderOptions{})
			tokens, calls, failed := map[string]bool{}, 0, 0
			for end := time.Now().Add(duration); time.Now().Before(end); {
				now, err := reader.TokenContext(ctx)
				if err != nil {
					return "", false, err
				}
				tokens[now.AccessToken] = true
				r, err := http.NewRequestWithContext(ctx, http.MethodGet,
					d.service.url+paymenttest.ProtectedPath+"payments", nil)
				if err != nil {
					return "", false, err
				}
				now.SetAuthHeader(r)
				r.Header.Set("Content-Type", "application/json")
				calls++
				if resp, err := d.Client.Do(r); err != nil {
					failed++
				} else {
					resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						failed++
					}
				}
				if err := smithytime.SleepWithContext(ctx, time.Second); err != nil {
					return "", false, err
				}
			}
			return fmt.Sprintf("%d of %d calls failed, %d tokens", failed, calls, len(tokens)),
				failed == 0 && len(tokens) > 1, nil
		},
	}
}

// certificateChecks look at the client certificate that the function got from API Gateway. The
// table has the others.
func (d *deployed) certificateChecks() []check {
	return []check{{what: "client certificates: the table above has the valid and the invalid ones; the one that the " +
		"function accepted last", expected: "one that was presented", needs: []local.Need{MTLS},
		do: func(ctx context.Context) (string, bool, error) {
			if err := d.authentic(ctx); err != nil {
				return "", false, err
			}
			// A process of the function writes each certificate once a day.
			presented := []tls.Certificate{d.Identity.Certificate(), d.Certificates.Next, d.Certificates.Expiring,
				d.Certificates.Renewed}
			last, err := keys.LastCertificate(ctx, dynamodb.NewFromConfig(d.AWS), d.KeysTable)
			if err != nil {
				return "", false, err
			}
			if last == nil {
				return "none", false, nil
			}
			return "fingerprint " + last.Fingerprint, slices.ContainsFunc(presented, func(c tls.Certificate) bool {
				return clientcert.Fingerprint(c.Leaf) == last.Fingerprint
			}), nil
		}}}
}
