package tokenstore_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/aws/tokenstore"
	"payhook.example/shared/awstest"
	"payhook.example/shared/storetest"
	"payhook.example/shared/token"
)

// slow is a store whose writes take as long as Parameter Store demands.
type slow struct{ token.Store }

func (s slow) Save(ctx context.Context, text string) error {
	time.Sleep(time.Second)
	return s.Store.Save(ctx, text)
}

func TestTheSecretTheParameterAndTheMemoryHaveTheSameResults(t *testing.T) {
	for seed := range uint64(3) {
		values := awstest.NewValues(t)
		values.Create("token", "")
		cfg := awstest.Config(values.URL)
		secret, parameter := tokenstore.New(cfg, "", "", "token"), tokenstore.New(cfg, "/token", "", "")
		synctest.Test(t, func(t *testing.T) {
			storetest.Token(t, seed, 200, &token.Memory{}, secret, slow{parameter})
			for n, source := range []token.Source{tokenstore.Source(cfg, "", "token"),
				tokenstore.Source(cfg, "/token", "")} {
				if text, err := source.Load(t.Context()); err != nil || !strings.HasPrefix(text, "{") {
					t.Errorf("%d: %s, %v", n, text, err)
				}
			}
		})
	}
}
