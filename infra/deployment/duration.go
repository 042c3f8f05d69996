package deployment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/ledger"
	"payhook.example/shared/settings"
)

// Duration returns a setting of the webhook or the redrive function that is a duration; 0 for off and never.
func (d *Deployment) Duration(ctx context.Context, key string) (time.Duration, error) {
	text, err := d.Deployed(ctx, key)
	if err != nil || text == "off" || text == "never" {
		return 0, err
	}
	return settings.ParseDuration(text)
}

// claimEndsSoon is how long before its end the event of a claim check is said to end.
const claimEndsSoon = 30 * 24 * time.Hour

// ClaimEnds returns when S3 deletes the events of those items that are claim checks, if that is in less than 30 days.
// It reads the setting only if there is a claim check.
func (d *Deployment) ClaimEnds(ctx context.Context, items []ledger.Item, now time.Time) (map[string]time.Time, error) {
	claimed := func(i ledger.Item) bool { return i.Claimed }
	if !slices.ContainsFunc(items, claimed) {
		return nil, nil
	}
	retention, err := d.Duration(ctx, "claimRetention")
	if err != nil || retention == 0 {
		return nil, err
	}
	ends := map[string]time.Time{}
	for _, i := range items {
		if end := i.RecordedAt.Add(retention); i.Claimed && end.Sub(now) < claimEndsSoon {
			ends[i.EventID] = end
		}
	}
	return ends, nil
}

// Revoked returns the setting revokedKeys of the webhook function.
func (d *Deployment) Revoked(ctx context.Context) (list clientcert.Revocations, err error) {
	text, err := d.Deployed(ctx, "revokedKeys")
	for name := range strings.SplitSeq(text, ";") {
		if parsed, err := clientcert.ParseRevocation(strings.TrimSpace(name)); err == nil {
			list = append(list, parsed)
		}
	}
	return list, err
}

// Deployed returns the text of a setting of the webhook function or, if that does not read it, of the redrive function.
func (d *Deployment) Deployed(ctx context.Context, key string) (string, error) {
	s, function := settings.Named(key), "webhook"
	if !slices.Contains(settings.ReadBy(function), s) {
		function = "redrive"
	}
	out, err := lambda.NewFromConfig(d.AWS).GetFunctionConfiguration(ctx,
		&lambda.GetFunctionConfigurationInput{FunctionName: aws.String(d.Functions[function])})
	if err != nil {
		return "", fmt.Errorf("the settings of the %s function: %w", function, err)
	}
	text := s.Default
	if out.Environment != nil {
		text = cmp.Or(out.Environment.Variables[s.Env()], text)
	}
	return text, nil
}
