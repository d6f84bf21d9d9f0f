package dev.edgedec.demo

import android.graphics.Typeface
import android.text.SpannableStringBuilder
import android.text.Spanned
import android.text.TextPaint
import android.text.style.CharacterStyle
import android.text.style.ForegroundColorSpan
import android.text.style.StyleSpan
import android.text.style.UpdateAppearance
import android.widget.ScrollView
import android.widget.TextView

/** How characters are shown. */
enum class Look { PROMPT, QUESTION, PLAIN, DRAFTED }

/** Characters of one look. */
data class Styled(val text: String, val look: Look)

/** Returns the pieces of an answer. */
fun Answer.styled(): List<Styled> = passage.pieces.map { Styled(it.text, if (it.drafted) Look.DRAFTED else Look.PLAIN) }

/** Returns prompts and answers; [you] stands before a question of a chat. */
fun List<Turn>.styled(you: String): List<Styled> = flatMapIndexed { index, turn ->
    val gap = if (index == 0) "" else "\n\n"
    val prompt = if (turn.chat) Styled("$gap$you${turn.prompt}\n", Look.QUESTION) else Styled(turn.prompt, Look.PROMPT)
    listOf(prompt) + turn.answer.styled()
}

/** Drafted tokens: underlined too, so that colour is not the only sign. */
class DraftedSpan(private val colour: Int) : CharacterStyle(), UpdateAppearance {
    override fun updateDrawState(paint: TextPaint) {
        paint.color = colour
        paint.isUnderlineText = true
    }
}

/** A view of a text that grows: only what is new is laid out, and its end stays in sight. */
class TextPane(private val view: TextView, private val scroll: ScrollView) {
    private val drafted = view.context.getColor(R.color.drafted)
    private val pale = view.hintTextColors.defaultColor
    private var shown = emptyList<Styled>()

    fun show(pieces: List<Styled>) {
        if (pieces == shown) return
        val same = shown.zip(pieces).takeWhile { (before, now) -> before == now }.size
        val kept = shown.take(same).sumOf { it.text.length }
        val text = view.editableText ?: SpannableStringBuilder().also { view.setText(it, TextView.BufferType.EDITABLE) }.let { view.editableText }
        val atEnd = !scroll.canScrollVertically(1)
        text.delete(kept, text.length)
        for (piece in pieces.drop(same)) {
            text.append(piece.text)
            span(piece.look)?.let { text.setSpan(it, text.length - piece.text.length, text.length, Spanned.SPAN_EXCLUSIVE_EXCLUSIVE) }
        }
        shown = pieces
        if (atEnd) scroll.post { scroll.scrollTo(0, view.height) }
    }

    private fun span(look: Look): CharacterStyle? = when (look) {
        Look.PROMPT -> ForegroundColorSpan(pale)
        Look.QUESTION -> StyleSpan(Typeface.BOLD)
        Look.PLAIN -> null
        Look.DRAFTED -> DraftedSpan(drafted)
    }
}
