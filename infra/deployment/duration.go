package deployment

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/shared/settings"
)

// Duration returns a setting of the webhook function that is a duration.
func (d *Deployment) Duration(ctx context.Context, key string) (time.Duration, error) {
	out, err := lambda.NewFromConfig(d.AWS).GetFunctionConfiguration(ctx,
		&lambda.GetFunctionConfigurationInput{FunctionName: aws.String(d.Functions["webhook"])})
	if err != nil {
		return 0, fmt.Errorf("the settings of the webhook function: %w", err)
	}
	s := settings.Named(key)
	text := s.Default
	if out.Environment != nil {
		text = cmp.Or(out.Environment.Variables[s.Env()], text)
	}
	return settings.ParseDuration(text)
}
