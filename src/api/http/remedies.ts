import type { Refused } from "../../engine/core/values/errors.ts";
import type { Remedy } from "../../engine/core/values/remedy.ts";

/**
 * Returns the text of a refusal for its reader: what is wrong, and the command or request that helps. A
 * string that a server of version 0.1.0 stored for a schedule ends with its remedy.
 */
export function formatRefusal({ message, remedy }: Pick<Refused, "message" | "remedy">): string {
  const end = remedy === undefined ? "" : formatRemedy(remedy);
  return message.endsWith(end) ? message : message + end;
}

/** Returns the end of a sentence that names a remedy. */
export function formatRemedy(remedy: Remedy): string {
  switch (remedy.remedy) {
    case "raise-limit": {
      const { account, plan, limit, isLast } = remedy;
      const command = `"waypost account limits ${account} --${toLimitFlag(limit)} <value>"`;
      return `${isLast ? ", or" : ";"} raise the limit of this account (plan ${plan}) with ${command}`;
    }
    case "raise-storage-quota":
      return `, or raise it with "waypost account limits ${remedy.account} --storage-bytes <n>"`;
    case "raise-server-queues":
      return ", or start the server with a higher WAYPOST_MAX_QUEUES";
    case "raise-budget":
      return "; PATCH /v2/svc/update-budget/<id> raises it, and the value 0 removes it";
    case "create-token":
      return '. Create another with "waypost token create" or POST /v2/tokens';
    case "enable-account":
      return `. "waypost account enable ${remedy.account}" re-enables it`;
    case "list-accounts":
      return '; "waypost account list" lists the accounts';
    case "show-account":
      return `; "waypost account show ${remedy.account}" shows it`;
    case "allow-host":
      return ", or ask the operator to add it (waypost account hosts)";
    case "create-group":
      return `; GET /v2/topics lists the groups, POST /v2/topics/${remedy.group}/endpoints creates this one`;
    case "repair-group":
      return (
        `; add all of them again (POST /v2/topics/${remedy.group}/endpoints), delete the group, ` +
        "or restore a backup"
      );
    case "retry-dead-letter":
      return `; use POST /v2/dlq/retry/${remedy.dlqId} to send it again`;
    case "resume-run":
      return `; use POST /v2/workflows/dlq/resume/${remedy.dlqId}`;
    case "rotate-later":
      return (
        `. Give them the keys of GET /v2/keys and rotate again at ${remedy.after} or later; ` +
        "force=true rotates now"
      );
    // A later version may have stored another one for a schedule.
    default:
      return "";
  }
}

/** Returns the command-line flag of a limit or another term, such as `message-bytes`. */
export const toLimitFlag = (name: string): string =>
  name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
