package deployment

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/shared/revocation"
	"payhook.example/shared/settings"
)

// Duration returns a setting of the webhook function that is a duration.
func (d *Deployment) Duration(ctx context.Context, key string) (time.Duration, error) {
	text, err := d.webhookSetting(ctx, key)
	if err != nil {
		return 0, err
	}
	return settings.ParseDuration(text)
}

// Revoked returns the setting revokedKeys of the webhook function.
func (d *Deployment) Revoked(ctx context.Context) (list revocation.List, err error) {
	text, err := d.webhookSetting(ctx, "revokedKeys")
	for name := range strings.SplitSeq(text, ";") {
		if parsed, err := revocation.Parse(strings.TrimSpace(name)); err == nil {
			list = append(list, parsed)
		}
	}
	return list, err
}

func (d *Deployment) webhookSetting(ctx context.Context, key string) (string, error) {
	out, err := lambda.NewFromConfig(d.AWS).GetFunctionConfiguration(ctx,
		&lambda.GetFunctionConfigurationInput{FunctionName: aws.String(d.Functions["webhook"])})
	if err != nil {
		return "", fmt.Errorf("the settings of the webhook function: %w", err)
	}
	s := settings.Named(key)
	text := s.Default
	if out.Environment != nil {
		text = cmp.Or(out.Environment.Variables[s.Env()], text)
	}
	return text, nil
}
