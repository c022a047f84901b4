/** Saves bytes or a string as a file that no program opens by itself. */
export function download(content: Uint8Array<ArrayBuffer> | string, name: string): void {
  const url = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
