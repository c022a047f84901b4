/** Why an outbox does not work. The text is for its owner, and has nothing of the URL. */
export class OutboxFailure extends Error {}
