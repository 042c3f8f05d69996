package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/shared/bus"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

// current returns the items of the ledger for those of its index, which follows with a delay, that have a state.
func (s *connected) current(ctx context.Context, index []ledger.Item, state ledger.State) (items []ledger.Item,
	err error) {
	for part := range slices.Chunk(index, ledger.MaxReads) {
		var ids []string
		for _, i := range part {
			ids = append(ids, i.EventID)
		}
		found, err := s.ledger.Get(ctx, ids, false)
		if err != nil {
			return nil, err
		}
		for _, i := range part {
			if item := found[i.EventID]; item.State == state {
				item.Err = cmp.Or(item.Err, i.Err)
				items = append(items, item)
			}
		}
	}
	return items, nil
}

// largeEventEnds returns when S3 deletes the events of those items that are claim checks, if that is in at most 30
// days. It reads the setting only if there is a claim check.
func (s *connected) largeEventEnds(ctx context.Context, items []ledger.Item, now time.Time) (map[string]time.Time,
	error) {
	large := func(i ledger.Item) bool { return i.Large }
	if !slices.ContainsFunc(items, large) {
		return nil, nil
	}
	conf, err := s.deployed(ctx, "redrive")
	if err != nil {
		return nil, err
	}
	ends := map[string]time.Time{}
	for _, i := range items {
		if end := bus.LargeEventEnd(i.RecordedAt, conf.LargeEventRetention, now); i.Large && !end.IsZero() {
			ends[i.EventID] = end
		}
	}
	return ends, nil
}

// deployed returns the settings that the webhook or the redrive function reads.
func (s *connected) deployed(ctx context.Context, function string) (settings.Config, error) {
	out, err := lambda.NewFromConfig(s.AWS).GetFunctionConfiguration(ctx,
		&lambda.GetFunctionConfigurationInput{FunctionName: aws.String(s.Functions[function])})
	if err != nil {
		return settings.Config{}, fmt.Errorf("the settings of the %s function: %w", function, err)
	}
	var variables map[string]string
	if out.Environment != nil {
		variables = out.Environment.Variables
	}
	// A function of another version can have variables that this version rejects. Its package is not here.
	conf, _ := settings.ParseConfig(function, func(name string) string { return variables[name] })
	return conf, nil
}

// keyEndpoint returns the key endpoint of settings. With keyEndpointAuth=bearer, it gets the access token. The error
// says that the service was not asked, because the token cannot be used.
func (s *connected) keyEndpoint(ctx context.Context, conf settings.Config) (*keys.Endpoint, error) {
	client := &http.Client{}
	if conf.KeyEndpointAuth == settings.BearerToken {
		if !s.KeepsToken() {
			return nil, errors.New("the key endpoint was not asked: keyEndpointAuth is bearer, and the stack has " +
				"tokenStore=none")
		}
		reader := s.Token()
		if _, err := reader.Bearer(ctx); err != nil {
			return nil, fmt.Errorf("the key endpoint was not asked: it needs the access token, which AskWithToken of "+
				"policy.json allows to read: %w", err)
		}
		client = token.NewClient(reader, conf.KeyEndpoint)
	}
	return keys.NewEndpoint(client, conf.KeyEndpoint, settings.KeyTimeout), nil
}
