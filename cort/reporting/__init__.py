"""What a report is made of: checked inputs, tables, figures, highlighted text, and the page that holds them."""
