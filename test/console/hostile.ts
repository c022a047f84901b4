/** A body from a stranger: markup, addresses that run code, characters that deceive, and large numbers. */
export const hostileBody = JSON.stringify({
  order: "48213",
  name: "<img src=x onerror=document.title='owned'>",
  site: "javascript:document.title='owned'",
  company: "Acme\u202Egnp.ecivno",
  note: "leave at the\u200Bdoor\u0000",
  map: "https://maps.example/p/81",
  script: "</script><script>document.title='owned'</script>",
}).replace(/}$/, ',"reference":9007199254740993,"weight":1.50}');

/** A name from a stranger, and a part of it that a page shows as it is. */
export const hostileText = {
  value: "acme\u202Egnp\u200B<img src=x onerror=document.title='owned'>",
  visiblePart: "<img src=x",
};
