// Checks CloudFormation templates with the AwsSolutions pack of cdk-nag, and with cdk-preflight, whose rules are
// what AWS refuses in a deployment although the template is valid. Arguments are the files of templates in JSON. It
// prints a JSON object with the findings of each file: the logical id of the resource and the rule, separated by a space.
"use strict";
const fs = require("fs");
const os = require("os");
const path = require("path");
const { App, Aspects, Stack } = require("aws-cdk-lib");
const { CfnInclude } = require("aws-cdk-lib/cloudformation-include");
const { AwsSolutionsChecks } = require("cdk-nag");
const { Preflight } = require("cdk-preflight");

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "audit-"));

// synth adds checks to an app with the template and synthesizes it. The Region is that of the keys in the templates.
function synth(template, name, check) {
  const app = new App({ outdir: path.join(folder, name) });
  const stack = new Stack(app, "Stack", { env: { region: "eu-central-1" } });
  new CfnInclude(stack, "Template", { templateFile: template });
  check(app);
  try {
    return app.synth().getStackArtifact(stack.artifactId);
  } finally {
    process.exitCode = 0; // findings set it
  }
}

function nag(template, name) {
  return synth(template, name + ".nag", (app) => Aspects.of(app).add(new AwsSolutionsChecks())).messages
    .map((message) => [message.id.split("/").pop(), String(message.entry.data).match(/^(\S+?)[[:]/)?.[1]])
    // Other messages are warnings of the CDK.
    .filter(([, rule]) => rule?.startsWith("AwsSolutions-") || rule?.startsWith("CdkNag"));
}

// strict counts the errors of the CDK's own validation as well.
function preflight(template, name) {
  try {
    synth(template, name + ".preflight", (app) => Preflight.apply(app, { strict: true }));
  } catch (error) {
    if (!String(error.message).startsWith("Validation failed")) throw error;
  }
  const report = fs.readFileSync(path.join(folder, name + ".preflight", "validation-report.json"));
  return JSON.parse(report).pluginReports.flatMap((plugin) => plugin.violations).flatMap((violation) =>
    violation.violatingConstructs.map((found) => [found.cloudFormationResource?.logicalId, violation.ruleName]));
}

const findings = {};
for (const file of process.argv.slice(2)) {
  // The stack around the template has these already.
  const { Parameters, Rules, ...template } = JSON.parse(fs.readFileSync(file));
  const included = path.join(folder, path.basename(file));
  fs.writeFileSync(included, JSON.stringify(template));
  findings[file] = [nag, preflight].flatMap((check) => check(included, path.basename(file)))
    .map((finding) => finding.join(" "));
}
fs.rmSync(folder, { recursive: true });
process.stdout.write(JSON.stringify(findings));
