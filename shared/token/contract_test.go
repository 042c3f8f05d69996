package token_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			storetest.Token(t, seed, 400, &token.Memory{}, newRig(t, hangsUp).store(),
				slow{newParameterRig(t, hangsUp).store()})
		})
	}
}
